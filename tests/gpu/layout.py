"""The state of the stub driver: one record in a mapped file, read and written by every process that sees the cards.

Everything is a 64-bit integer or a text that ends in a NUL, in the byte order of the machine; `header()` makes the C
structures of stub.c from the classes here. Temperatures in °C, power in mW, energy in mJ, clocks in MHz, memory in bytes,
activities in percent, times in ns of the monotonic clock where nothing else is said.

    State     magic, version, size      that both sides mean the same record
              loaded                    0: there is no driver (DriverNotLoaded)
              root                      0: who sets gets NoPermission
              loads                     how often the driver was loaded: another number, and settings are gone
              num_cards, cards
              clients                   process ids that have initialised the library
              faults                    what goes wrong, by the call's name: Fault
              num_calls, calls          ring of all calls that set something, refused ones as well: Call

    Card      uuid to links             what it is; `threshold_*` are 0 where there is no such limit, `tlimit` says that
                                        only margins are told (Ada and later), `gpm` that activities are (Hopper and later)
              error                     a code that every call on the card returns from now on (15 lost, 16 reset required)
              requested_mw, lock_*      what processes have set; it outlives them. lock_max_mhz 0 is no lock
              outside_mw                a power limit from outside the system; 0 is none
              temperature_c to xids     what it says; the physics writes it. `time_ns` is the physics' own time, over which
                                        `sm_ns`, `dram_ns` and `tensor_ns` count busy time; `xids` is a ring

    Fault     name                      the call's name without `nvml`; `field:82` is one field's value
              card                      at this one alone; -1 at all
              code                      what it returns; -1 is the usual, with `value` in place of the true one; a call that
                                        sets something does nothing then, if `value` is 1
              times                     so often from now; -1 is for good, 0 is never (an unused record)
              delay_ns                  it takes so long first; -1 is until the record's `times` is 0

    Call      number                    from 1, written last: 0 is a call that is being written
              process, time_ns, card    who, when, on what
              code                      what it returned
              first, second             its arguments
              name                      without `nvml`
"""

from ctypes import Array, Structure, c_char, c_int64
from typing import Any

MAGIC = 0x6C6D766E
VERSION = 1
NUM_CALLS = 65536

_INTEGERS_OF_CARD = {
    "identity": (
        "memory_bytes", "memory_clock_mhz", "default_mw", "min_mw", "max_mw", "threshold_shutdown_c",
        "threshold_slowdown_c", "threshold_memory_c", "threshold_gpu_c", "tlimit", "gpm", "mig", "persistence", "links",
    ),
    "settings": ("error", "requested_mw", "lock_min_mhz", "lock_max_mhz", "outside_mw"),
    "sensors": (
        "time_ns", "temperature_c", "memory_temperature_c", "margin_c", "power_mw", "instant_mw", "energy_mj",
        "sm_clock_mhz", "memory_clock_now_mhz", "utilization", "memory_utilization", "memory_used_bytes", "reasons",
        "power_cap_ns", "sw_thermal_ns", "hw_thermal_ns", "brake_ns", "sm_ns", "dram_ns", "tensor_ns", "pcie_generation",
        "pcie_width", "pcie_replays", "links_active", "ecc_errors", "num_xids",
    ),
}  # fmt: skip


class Card(Structure):
    _fields_ = [
        ("uuid", c_char * 96),
        ("name", c_char * 96),
        *((name, c_int64) for name in _INTEGERS_OF_CARD["identity"]),
        ("num_clocks", c_int64),
        ("clocks_mhz", c_int64 * 256),
        *((name, c_int64) for name in _INTEGERS_OF_CARD["settings"]),
        *((name, c_int64) for name in _INTEGERS_OF_CARD["sensors"]),
        ("xids", c_int64 * 16),
    ]


class Fault(Structure):
    _fields_ = [("name", c_char * 64), *((name, c_int64) for name in ("card", "code", "times", "delay_ns", "value"))]


class Call(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("number", "process", "time_ns", "card", "code", "first", "second")),
        ("name", c_char * 64),
    ]


class State(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("magic", "version", "size", "loaded", "root", "loads", "num_cards")),
        ("driver", c_char * 64),
        ("cards", Card * 8),
        ("clients", c_int64 * 64),
        ("faults", Fault * 32),
        ("num_calls", c_int64),
        ("calls", Call * NUM_CALLS),
    ]


def header() -> str:
    """The same structures in C."""
    lines = [f"#define MAGIC {MAGIC}", f"#define VERSION {VERSION}"]
    for structure in (Card, Fault, Call, State):
        lines += [f"struct {structure.__name__.lower()} {{", *map(_member, structure._fields_), "};"]
    return "\n".join(lines) + "\n"


def _member(field: Any) -> str:
    name, kind = field[:2]
    length = ""
    if issubclass(kind, Array):
        kind, length = kind._type_, f"[{kind._length_}]"
    c_type = {c_char: "char", c_int64: "int64_t"}.get(kind, f"struct {kind.__name__.lower()}")
    return f"    {c_type} {name}{length};"
