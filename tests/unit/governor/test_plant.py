"""The simulated physics against what can be worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from tasks.governor.cards import A10G, CARDS, H100, PlantParameters, randomised
from tasks.governor.plant import DT_S, Plant
from tasks.governor.sample import Throttle

COLD = replace(H100, leak_share=0.0)
"""A card whose power does not depend on its temperature."""


def running(card: PlantParameters, prefill: float = 1.0, inlet_c: float = 25.0) -> Plant:
    plant = Plant([card], inlet_c)
    plant.sequences[:], plant.prefill[:] = 1.0, prefill
    return plant


@pytest.mark.parametrize("name", sorted(CARDS))
def test_it_settles_where_the_resistances_say(name: str) -> None:
    """In the long run the die is at inlet + power * (both resistances), and the heatsink by its own."""
    plant = running(CARDS[name], prefill=0.0)
    plant.run(500)
    assert plant.die_c[0] == pytest.approx(25 + plant.power_w[0] * CARDS[name].steady_r, abs=0.05)
    assert plant.sink_c[0] == pytest.approx(25 + plant.power_w[0] * CARDS[name].sink_r, abs=0.05)


def test_a_step_of_power_moves_the_die_first_and_the_heatsink_later() -> None:
    """The answer to a step is that of the two-pole model, whose matrix exponential is worked out apart."""
    plant = running(COLD, prefill=0.0)
    plant.run(500)
    start = np.array([plant.die_c[0], plant.sink_c[0]])
    before = plant.power_w[0]
    plant.prefill[:] = 1.0
    plant.run(2)
    settled, watts = np.array([plant.die_c[0], plant.sink_c[0]]), plant.power_w[0]
    assert watts > before + 200 and settled[0] > start[0] + 2
    die_c, sink_c = COLD.die_tau_s / COLD.die_r, COLD.sink_tau_s / COLD.sink_r
    flow = 1 / COLD.die_r
    matrix = np.array([[-flow / die_c, flow / die_c], [flow / sink_c, -(flow + 1 / COLD.sink_r) / sink_c]])
    steady = np.linalg.solve(matrix, -np.array([watts / die_c, 25 / COLD.sink_r / sink_c]))
    values, vectors = np.linalg.eig(matrix)
    for seconds in (3.0, 30.0, 90.0):
        exact = steady + vectors @ (np.exp(values * seconds) * np.linalg.solve(vectors, settled - steady))
        again = _at(plant, settled, seconds)
        assert again == pytest.approx(exact, abs=0.05)


def _at(plant: Plant, start: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", seconds: float) -> list[float]:
    plant.die_c[:], plant.sink_c[:] = start
    plant.run(seconds)
    return [plant.die_c[0], plant.sink_c[0]]


def test_heat_is_conserved() -> None:
    """What the card drew is in its two masses or went out into the air."""
    plant = running(H100)
    die, sink = H100.die_tau_s / H100.die_r, H100.sink_tau_s / H100.sink_r
    before = die * plant.die_c[0] + sink * plant.sink_c[0]
    drawn = out = 0.0
    for _ in range(600):
        sink_before = plant.sink_c[0]
        plant.step()
        drawn += plant.power_w[0] * DT_S
        out += ((plant.sink_c[0] + sink_before) / 2 - 25) / H100.sink_r * DT_S
    stored = die * plant.die_c[0] + sink * plant.sink_c[0] - before
    assert stored == pytest.approx(drawn - out, rel=1e-9)


def test_the_energy_counter_is_the_sum_of_power_over_time() -> None:
    """Joules are watts times seconds, whatever the load does."""
    plant, joules = running(A10G), 0.0
    for step in range(1000):
        plant.prefill[:] = step // 100 % 2
        plant.step()
        joules += plant.power_w[0] * DT_S
    assert plant.sensors.energy_j[0] == pytest.approx(joules, rel=1e-12)


def test_a_power_limit_holds_and_the_clock_pays_for_it() -> None:
    """A limit that binds is drawn to the watt, at a lower clock; in decode the same limit changes nothing."""
    plant = running(H100)
    plant.run(5)
    full = plant.clock[0]
    plant.limit_w[:] = 500
    plant.run(5)
    assert plant.power_w[0] == pytest.approx(500, abs=1) and plant.clock[0] < full - 0.1
    assert plant.sensors.throttle[0] & Throttle.SW_POWER_CAP
    plant.prefill[:] = 0
    plant.run(5)
    assert plant.power_w[0] < 400 and plant.clock[0] == pytest.approx(1, abs=1e-6)


def test_the_highest_clock_within_a_limit_is_found() -> None:
    """The clock found draws the limit, for random cards, loads and limits."""
    rng = np.random.default_rng(3)
    plant = Plant([randomised(card, rng) for card in CARDS.values() for _ in range(40)])
    plant.sequences[:], plant.prefill[:] = rng.uniform(0.1, 1, 200), rng.uniform(0, 1, 200)
    limit = rng.uniform(0.3, 1.2, 200) * [card.default_w for card in plant.parameters]
    clock = plant.clock_within(limit)
    drawn = plant.power(clock)
    between = (clock > plant.min_clock) & (clock < 1)
    assert between.sum() > 50
    assert np.abs(drawn - limit)[between].max() < 0.1
    assert (drawn[clock == 1] <= limit[clock == 1] + 0.1).all()
    assert (drawn[clock == plant.min_clock] >= limit[clock == plant.min_clock] - 0.1).all()


def test_power_and_speed_are_those_of_the_public_sweep() -> None:
    """An RTX 3090's fits, P/TDP = 0.32 + 1.13 f V² in prefill and 0.25 + 0.70 f V² in decode, come out within 3 %."""
    plant = running(A10G)
    plant.die_c[:] = 65
    for clock in (0.5, 0.7, 0.85, 1.0):
        voltage = 0.65 + 0.35 * max(clock - 0.7, 0) / 0.3
        plant.prefill[:] = 1
        assert plant.power(np.array([clock]))[0] / 300 == pytest.approx(0.32 + 1.13 * clock * voltage**2, abs=0.03)
        plant.prefill[:] = 0
        assert plant.power(np.array([clock]))[0] / 300 == pytest.approx(0.25 + 0.70 * clock * voltage**2, abs=0.03)
    prefill, decode = plant.speed(np.array([0.5]))
    assert (prefill[0], decode[0]) == (pytest.approx(1 / 1.92), pytest.approx(1 / 1.24))


def test_too_low_a_limit_falls_off_a_cliff() -> None:
    """At 100 W of 350 W decode has less than half of what the curve alone would give."""
    card = replace(A10G, default_w=350)
    slow = running(card, prefill=0.0)
    slow.limit_w[:] = 100
    slow.run(20)
    before = slow.decode_work[0]
    slow.run(1)
    curve = slow.speed(slow.clock)[1][0]
    assert slow.decode_work[0] - before < 0.55 * curve


def test_fewer_sequences_are_slower_and_draw_less() -> None:
    """The batch is a lever: half the sequences lose less than half of decode's rate, a few keep all of prefill's."""
    rates = {}
    for prefill in (0.0, 1.0):
        for sequences in (0.0, 0.02, 0.5, 1.0):
            plant = running(COLD, prefill)
            plant.sequences[:] = sequences
            plant.run(60)
            rates[prefill, sequences] = (plant.decode_work + plant.prefill_work)[0], plant.power_w[0]
    for prefill in (0.0, 1.0):
        work, power = zip(*(rates[prefill, sequences] for sequences in (0.0, 0.02, 0.5, 1.0)), strict=True)
        assert list(work) == sorted(work) and work[0] == 0
        assert list(power) == sorted(power)
    assert 0.6 < rates[0.0, 0.5][0] / rates[0.0, 1.0][0] < 0.9
    assert rates[1.0, 0.5] == rates[1.0, 1.0]


def test_software_slows_down_above_the_highest_operating_temperature() -> None:
    """Without a fan the card holds itself about its limit, by its clock, and says so in bit and counter."""
    plant = running(H100)
    plant.fan[:] = 2.2
    plant.run(900)
    assert H100.max_c - 2 < plant.die_c[0] < H100.slowdown_c
    assert plant.clock[0] < 0.85
    assert plant.sensors.thermal_ns[0] > 60e9
    assert plant.sensors.throttle[0] & Throttle.SW_THERMAL


def test_hardware_halves_the_clock_until_three_degrees_below() -> None:
    """At the slowdown temperature the clock is at most 0.45 of the highest, and comes back only when it has cooled."""
    plant = running(H100)
    plant.die_c[:] = plant.sink_c[:] = H100.slowdown_c + 1
    plant.run(2)
    assert plant.clock[0] <= 0.451
    assert plant.sensors.throttle[0] & (Throttle.HW_THERMAL | Throttle.HW_SLOWDOWN)
    while plant.die_c[0] > H100.slowdown_c - 3:
        assert plant.clock[0] <= 0.451
        plant.step()
    plant.run(30)
    assert plant.clock[0] > 0.451


def test_a_card_at_its_shutdown_temperature_is_lost() -> None:
    """It stops working, and cooling does not bring it back."""
    plant = running(H100)
    plant.die_c[:] = plant.sink_c[:] = H100.shutdown_c + 0.5
    plant.run(1)
    done = plant.prefill_work[0]
    plant.run(100)
    assert plant.lost[0] and plant.prefill_work[0] == done and plant.power_w[0] == 0


def test_hot_memory_slows_the_card_down_too() -> None:
    """Above the memory's limit the clock goes down while the die is far from its own."""
    plant = running(replace(H100, memory_rise_c=60.0), prefill=0.0)
    plant.run(600)
    assert plant.die_c[0] < H100.max_c - 20
    assert plant.sensors.throttle[0] & Throttle.SW_THERMAL and plant.clock[0] < 0.9


def test_sensors_lag_round_down_and_average() -> None:
    """The reading is a whole degree, never above the die on the way up, and power is the mean of a second."""
    plant = running(H100)
    powers = []
    for _ in range(30):
        plant.step()
        powers.append(plant.power_w[0])
        reading = plant.sensors.reading(0)
        assert reading.temperature_c == int(reading.temperature_c) <= plant.die_c[0]
    assert plant.sensors.reading(0).power_w == pytest.approx(np.mean(powers[-10:]))
    assert plant.die_c[0] - plant.sensors.reading(0).temperature_c > 1


def test_one_of_many_is_the_same_as_alone() -> None:
    """A card among others, and a second run, come out the same to the bit."""
    rng = np.random.default_rng(5)
    cards = [randomised(card, rng) for card in CARDS.values()]
    together, again = Plant(cards), Plant(cards)
    for plant in (together, again):
        plant.sequences[:], plant.prefill[:] = 1.0, 0.7
        plant.run(60)
    assert (together.die_c == again.die_c).all() and (together.sensors.energy_j == again.sensors.energy_j).all()
    for index, card in enumerate(cards):
        alone = running(card, prefill=0.7)
        alone.run(60)
        assert (alone.die_c[0], alone.clock[0]) == (together.die_c[index], together.clock[index])


def test_random_cards_differ_by_at_most_the_spread() -> None:
    """Resistances move by up to 40 %, curves by up to the mismatch, and what is printed on the card stays."""
    rng = np.random.default_rng(7)
    many = [randomised(H100, rng, 0.4, 0.3) for _ in range(300)]
    ratios = np.array([one.die_r / H100.die_r for one in many])
    assert ratios.min() < 0.65 and ratios.max() > 1.35 and ratios.min() >= 0.6 and ratios.max() <= 1.4
    assert all(0 < one.decode_mu < 1 and one.v_knee < 0.8 and one.default_w == 700 for one in many)


def test_the_power_that_holds_a_temperature_is_known() -> None:
    """Drawing what `power_to_reach` says takes the die there in one step, and keeps it there."""
    plant = running(H100)
    plant.clock_share[:] = 1.0
    plant.run(40)
    for _ in range(50):
        plant.lock = plant.clock_within(plant.power_to_reach(np.array([48.0])))
        plant.step()
    assert plant.min_clock[0] < plant.lock[0] < 1
    assert plant.die_c[0] == pytest.approx(48.0, abs=1e-3)


def test_a_bound_on_sequences_is_a_pause_at_zero() -> None:
    """With nothing allowed to run the card is as idle as with nothing to do."""
    paused, idle = running(H100), Plant([H100])
    paused.bound[:] = 0.0
    paused.run(30)
    idle.run(30)
    assert paused.power_w[0] == idle.power_w[0] and paused.prefill_work[0] == 0
