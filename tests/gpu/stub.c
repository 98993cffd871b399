/* libnvidia-ml.so.1 without a driver: what NVML answers, from a record in the file that NVML_STUB_STATE names.
 *
 * layout.py documents the record and makes layout.h. This side reads what the physics writes there, applies what is set,
 * notes each call that sets something, and lets go wrong what the record's faults say. Names and structures are those of
 * NVIDIA's nvml.h; which answers real drivers give where is from its comments and from public issue threads.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, RM_MISMATCH = 18, NO_DATA = 21, VERSION_MISMATCH = 25,
};

enum { IGNORED = -1 };

#define LENGTH(array) ((int)(sizeof(array) / sizeof(array)[0]))
#define API __attribute__((visibility("default"))) int
#define ORDERED __ATOMIC_SEQ_CST

typedef struct card *device_t;

static struct state *state;
static int opened;

static int64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void sleep_ns(int64_t ns) {
    struct timespec left = {ns / 1000000000LL, ns % 1000000000LL};
    while (nanosleep(&left, &left) == -1 && errno == EINTR) continue;
}

/* The mapped record; every failure is one that a machine without a working driver shows. */
static int open_state(void) {
    struct stat file;
    const char *path = getenv("NVML_STUB_STATE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (state) munmap(state, sizeof *state);
    state = NULL;
    if (fd < 0) return DRIVER_NOT_LOADED;
    void *at = MAP_FAILED;
    if (fstat(fd, &file) == 0 && file.st_size == sizeof *state)
        at = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) return RM_MISMATCH;
    state = at;
    int is_ours = state->magic == MAGIC && state->version == VERSION && state->size == sizeof *state;
    return is_ours ? SUCCESS : RM_MISMATCH;
}

/* The fault that is meant for this call, used up by one; NULL is none. */
static struct fault *fault_of(const char *name, int64_t card) {
    for (int i = 0; i < LENGTH(state->faults); i++) {
        struct fault *fault = &state->faults[i];
        int64_t times = __atomic_load_n(&fault->times, ORDERED);
        if (times == 0 || strcmp(fault->name, name) != 0 || (fault->card >= 0 && card >= 0 && fault->card != card)) continue;
        if (fault->delay_ns >= 0) sleep_ns(fault->delay_ns);
        else
            while (__atomic_load_n(&fault->times, ORDERED) != 0) sleep_ns(5000000);
        if (times > 0 && fault->delay_ns >= 0) __atomic_fetch_sub(&fault->times, 1, ORDERED);
        return fault;
    }
    return NULL;
}

static int64_t index_of(device_t card) { return card - state->cards; }

/* What a call on a card returns before it has done anything; `value` is replaced where a fault has another one. */
static int enter(const char *name, device_t card, int64_t *value) {
    if (!opened) return UNINITIALIZED;
    if (!state->loaded) return DRIVER_NOT_LOADED;
    if (card && (card < state->cards || card >= state->cards + state->num_cards)) return INVALID_ARGUMENT;
    struct fault *fault = fault_of(name, card ? index_of(card) : -1);
    if (card && card->error) return (int)card->error;
    if (fault && fault->code >= 0) return (int)fault->code;
    if (fault && value) *value = fault->value;
    return SUCCESS;
}

/* Notes a call that sets something, and what came of it. */
static int noted(const char *name, device_t card, int code, int64_t first, int64_t second) {
    if (code == IGNORED) code = SUCCESS;
    if (!opened || code == UNINITIALIZED) return code;
    int64_t number = __atomic_add_fetch(&state->num_calls, 1, ORDERED);
    struct call *call = &state->calls[(number - 1) % LENGTH(state->calls)];
    __atomic_store_n(&call->number, 0, ORDERED);
    call->process = getpid(), call->time_ns = now_ns(), call->card = index_of(card), call->code = code;
    call->first = first, call->second = second;
    strncpy(call->name, name, sizeof call->name - 1);
    __atomic_store_n(&call->number, number, ORDERED);
    return code;
}

/* --- the library, and which cards there are ------------------------------------------------------------------------- */

static int lives(int64_t process) { return process > 0 && (kill((pid_t)process, 0) == 0 || errno == EPERM); }

static void forget_settings(device_t card) {
    card->requested_mw = card->default_mw;
    card->lock_min_mhz = card->lock_max_mhz = 0;
}

/* Without persistence the driver forgets what was set when its last client is gone, however that went. */
static void join(void) {
    int others = 0, free_at = -1;
    for (int i = 0; i < LENGTH(state->clients); i++) {
        if (state->clients[i] == getpid()) return;
        if (lives(state->clients[i])) others++;
        else {
            state->clients[i] = 0;
            free_at = i;
        }
    }
    for (int i = 0; !others && i < state->num_cards; i++)
        if (!state->cards[i].persistence) forget_settings(&state->cards[i]);
    if (free_at >= 0) state->clients[free_at] = getpid();
}

static void leave(void) {
    for (int i = 0; i < LENGTH(state->clients); i++)
        if (state->clients[i] == getpid()) state->clients[i] = 0;
}

API nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int code = opened ? SUCCESS : open_state();
    if (code) return code;
    if (!state->loaded) return DRIVER_NOT_LOADED;
    struct fault *fault = fault_of("InitWithFlags", -1);
    if (fault && fault->code > 0) return (int)fault->code;
    join();
    opened++;
    return SUCCESS;
}

API nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

API nvmlShutdown(void) {
    if (!opened) return UNINITIALIZED;
    if (--opened == 0) leave();
    return SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int code) {
    return code == SUCCESS ? "Success" : code == NOT_SUPPORTED ? "Not Supported" : "Error of the stub driver";
}

static int text(const char *from, char *to, unsigned length) {
    if (strlen(from) >= length) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

API nvmlSystemGetDriverVersion(char *version, unsigned length) {
    int code = enter("SystemGetDriverVersion", NULL, NULL);
    return code ? code : text(state->driver, version, length);
}

API nvmlDeviceGetCount_v2(unsigned *count) {
    int64_t value = state ? state->num_cards : 0;
    int code = enter("DeviceGetCount_v2", NULL, &value);
    *count = (unsigned)value;
    return code;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device) {
    int code = enter("DeviceGetHandleByIndex_v2", NULL, NULL);
    if (code) return code;
    if (index >= state->num_cards) return INVALID_ARGUMENT;
    *device = &state->cards[index];
    return (int)(*device)->error;
}

API nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device) {
    int code = enter("DeviceGetHandleByUUID", NULL, NULL);
    for (int i = 0; !code && i < state->num_cards; i++) {
        if (strcmp(state->cards[i].uuid, uuid) != 0) continue;
        *device = &state->cards[i];
        return (int)(*device)->error;
    }
    return code ? code : NOT_FOUND;
}

API nvmlDeviceGetUUID(device_t card, char *uuid, unsigned length) {
    int code = enter("DeviceGetUUID", card, NULL);
    return code ? code : text(card->uuid, uuid, length);
}

API nvmlDeviceGetName(device_t card, char *name, unsigned length) {
    int code = enter("DeviceGetName", card, NULL);
    return code ? code : text(card->name, name, length);
}

/* --- numbers of a card ---------------------------------------------------------------------------------------------- */

/* A call that gives one number, which not every card has. */
#define NUMBER(call, type, member, supported)                                      \
    API nvmlDeviceGet##call(device_t card, type *answer) {                         \
        int64_t value = known(card) ? card->member : 0;                            \
        int code = enter("DeviceGet" #call, card, &value);                         \
        if (code == SUCCESS) *answer = (type)value;                                \
        return code ? code : (supported) ? SUCCESS : NOT_SUPPORTED;                \
    }

static int known(device_t card) { return state && card >= state->cards && card < state->cards + LENGTH(state->cards); }

static int64_t enforced_mw(device_t card) {
    int64_t outside = card->outside_mw;
    return outside > 0 && outside < card->requested_mw ? outside : card->requested_mw;
}

NUMBER(PowerUsage, unsigned, power_mw, 1)
NUMBER(TotalEnergyConsumption, unsigned long long, energy_mj, 1)
NUMBER(PowerManagementLimit, unsigned, requested_mw, 1)
NUMBER(PowerManagementDefaultLimit, unsigned, default_mw, 1)
NUMBER(CurrentClocksEventReasons, unsigned long long, reasons, 1)
NUMBER(CurrentClocksThrottleReasons, unsigned long long, reasons, 1)
NUMBER(PersistenceMode, unsigned, persistence, 1)
NUMBER(CurrPcieLinkGeneration, unsigned, pcie_generation, card->pcie_generation > 0)
NUMBER(CurrPcieLinkWidth, unsigned, pcie_width, card->pcie_width > 0)
NUMBER(PcieReplayCounter, unsigned, pcie_replays, card->pcie_replays >= 0)

API nvmlDeviceGetIndex(device_t card, unsigned *index) {
    int code = enter("DeviceGetIndex", card, NULL);
    if (!code) *index = (unsigned)index_of(card);
    return code;
}

API nvmlDeviceGetEnforcedPowerLimit(device_t card, unsigned *mw) {
    int64_t value = known(card) ? enforced_mw(card) : 0;
    int code = enter("DeviceGetEnforcedPowerLimit", card, &value);
    if (!code) *mw = (unsigned)value;
    return code;
}

API nvmlDeviceGetPowerManagementLimitConstraints(device_t card, unsigned *least, unsigned *most) {
    int code = enter("DeviceGetPowerManagementLimitConstraints", card, NULL);
    if (!code) *least = (unsigned)card->min_mw, *most = (unsigned)card->max_mw;
    return code;
}

static int temperature(const char *name, device_t card, int sensor, int *celsius) {
    int64_t value = known(card) ? card->temperature_c : 0;
    int code = enter(name, card, &value);
    if (!code) *celsius = (int)value;
    return code ? code : sensor == 0 ? SUCCESS : INVALID_ARGUMENT;
}

API nvmlDeviceGetTemperature(device_t card, int sensor, unsigned *celsius) {
    return temperature("DeviceGetTemperature", card, sensor, (int *)celsius);
}

struct temperature { unsigned version; int sensor, celsius; };

API nvmlDeviceGetTemperatureV(device_t card, struct temperature *asked) {
    if (asked->version != 0x100000C) return VERSION_MISMATCH;
    return temperature("DeviceGetTemperatureV", card, asked->sensor, &asked->celsius);
}

struct margin { unsigned version; int celsius; };

API nvmlDeviceGetMarginTemperature(device_t card, struct margin *margin) {
    int64_t value = known(card) ? card->margin_c : 0;
    int code = enter("DeviceGetMarginTemperature", card, &value);
    if (code) return code;
    if (margin->version != 0x1000008) return VERSION_MISMATCH;
    margin->celsius = (int)value;
    return card->tlimit ? SUCCESS : NOT_SUPPORTED;
}

/* The limits of the card: shutdown, slowdown, memory, and where software slows down. */
static int64_t threshold(device_t card, int which) {
    int64_t all[] = {card->threshold_shutdown_c, card->threshold_slowdown_c, card->threshold_memory_c, card->threshold_gpu_c};
    return all[which];
}

API nvmlDeviceGetTemperatureThreshold(device_t card, int which, unsigned *celsius) {
    int64_t value = known(card) && which >= 0 && which < 4 ? threshold(card, which) : 0;
    int code = enter("DeviceGetTemperatureThreshold", card, &value);
    if (code) return code;
    if (which < 0 || which > 7) return INVALID_ARGUMENT;
    if (which > 3 || card->tlimit || value == 0) return NOT_SUPPORTED;
    *celsius = (unsigned)value;
    return SUCCESS;
}

API nvmlDeviceGetClockInfo(device_t card, int which, unsigned *mhz) {
    int64_t value = !known(card) ? 0 : which == 2 ? card->memory_clock_now_mhz : card->sm_clock_mhz;
    int code = enter(which == 2 ? "DeviceGetClockInfo:memory" : "DeviceGetClockInfo", card, &value);
    if (!code) *mhz = (unsigned)value;
    return code ? code : which >= 0 && which < 4 ? SUCCESS : INVALID_ARGUMENT;
}

API nvmlDeviceGetSupportedMemoryClocks(device_t card, unsigned *count, unsigned *mhz) {
    int code = enter("DeviceGetSupportedMemoryClocks", card, NULL);
    if (code) return code;
    int room = (int)*count;
    *count = 1;
    if (room < 1 || !mhz) return INSUFFICIENT_SIZE;
    mhz[0] = (unsigned)card->memory_clock_mhz;
    return SUCCESS;
}

/* Highest first, as drivers list them. */
API nvmlDeviceGetSupportedGraphicsClocks(device_t card, unsigned memory_mhz, unsigned *count, unsigned *mhz) {
    int code = enter("DeviceGetSupportedGraphicsClocks", card, NULL);
    if (code) return code;
    if (memory_mhz != card->memory_clock_mhz) return NOT_FOUND;
    int room = (int)*count, needed = (int)card->num_clocks;
    *count = (unsigned)needed;
    if (needed && (room < needed || !mhz)) return INSUFFICIENT_SIZE;
    for (int i = 0; i < needed; i++) mhz[i] = (unsigned)card->clocks_mhz[needed - 1 - i];
    return SUCCESS;
}

struct memory { unsigned long long total, free, used; };

API nvmlDeviceGetMemoryInfo(device_t card, struct memory *memory) {
    int64_t used = known(card) ? card->memory_used_bytes : 0;
    int code = enter("DeviceGetMemoryInfo", card, &used);
    if (code) return code;
    memory->total = (uint64_t)card->memory_bytes, memory->used = (uint64_t)used, memory->free = memory->total - memory->used;
    return SUCCESS;
}

API nvmlDeviceGetMigMode(device_t card, unsigned *now, unsigned *pending) {
    int code = enter("DeviceGetMigMode", card, NULL);
    if (code) return code;
    if (card->mig < 0) return NOT_SUPPORTED;
    *now = *pending = (unsigned)card->mig;
    return SUCCESS;
}

struct utilization { unsigned gpu, memory; };

API nvmlDeviceGetUtilizationRates(device_t card, struct utilization *rates) {
    int64_t value = known(card) ? card->utilization : 0;
    int code = enter("DeviceGetUtilizationRates", card, &value);
    if (code) return code;
    if (card->mig == 1) return NOT_SUPPORTED;
    rates->gpu = (unsigned)value, rates->memory = (unsigned)card->memory_utilization;
    return SUCCESS;
}

API nvmlDeviceGetNvLinkState(device_t card, unsigned link, unsigned *active) {
    int code = enter("DeviceGetNvLinkState", card, NULL);
    if (code) return code;
    if (card->links == 0) return NOT_SUPPORTED;
    if (link >= card->links) return INVALID_ARGUMENT;
    *active = link < card->links_active;
    return SUCCESS;
}

API nvmlDeviceGetTotalEccErrors(device_t card, int kind, int counter, unsigned long long *count) {
    int64_t value = known(card) ? card->ecc_errors : 0;
    int code = enter("DeviceGetTotalEccErrors", card, &value);
    if (code) return code;
    if (value < 0) return NOT_SUPPORTED;
    *count = kind == 1 && counter == 0 ? (unsigned long long)value : 0;
    return SUCCESS;
}

/* --- field values --------------------------------------------------------------------------------------------------- */

union value { double d; unsigned ui; unsigned long long ull; long long sll; int si; };
struct field { uint32_t id, scope; int64_t timestamp_us, latency_us; int type, code; union value value; };
enum { UNSIGNED = 1, UNSIGNED_LONG_LONG = 3, SIGNED = 5 };

static int field(device_t card, uint32_t id, int64_t *value) {
    int64_t gpu_c = card->threshold_gpu_c;
    switch (id) {
        case 4: *value = card->ecc_errors; return *value < 0 ? -NOT_SUPPORTED : UNSIGNED_LONG_LONG;
        case 74: *value = card->power_cap_ns; return UNSIGNED_LONG_LONG;
        case 75: *value = card->sw_thermal_ns + card->hw_thermal_ns; return UNSIGNED_LONG_LONG;
        case 82: *value = card->memory_temperature_c; return *value > 0 ? UNSIGNED : -NOT_SUPPORTED;
        case 83: *value = card->energy_mj; return UNSIGNED_LONG_LONG;
        case 91: *value = card->links; return UNSIGNED;
        case 185: *value = card->power_mw; return UNSIGNED;
        case 186: *value = card->instant_mw; return UNSIGNED;
        case 187: *value = card->min_mw; return UNSIGNED;
        case 188: *value = card->max_mw; return UNSIGNED;
        case 189: *value = card->default_mw; return UNSIGNED;
        case 190: *value = enforced_mw(card); return UNSIGNED;
        case 192: *value = card->requested_mw; return UNSIGNED;
        case 193: case 194: case 195: case 196:
            *value = id == 195 ? 0 : gpu_c - threshold(card, id == 196 ? 3 : (int)id - 193);
            return card->tlimit ? SIGNED : -NOT_SUPPORTED;
        case 269: *value = card->sw_thermal_ns; return UNSIGNED_LONG_LONG;
        case 270: *value = card->hw_thermal_ns; return UNSIGNED_LONG_LONG;
        case 271: *value = card->brake_ns; return UNSIGNED_LONG_LONG;
        default: return -NOT_SUPPORTED;
    }
}

API nvmlDeviceGetFieldValues(device_t card, int count, struct field *fields) {
    int code = enter("DeviceGetFieldValues", card, NULL);
    if (code) return code;
    for (int i = 0; i < count; i++) {
        char name[32];
        int64_t value = 0;
        int type = field(card, fields[i].id, &value);
        snprintf(name, sizeof name, "field:%u", fields[i].id);
        fields[i].code = type < 0 ? -type : enter(name, card, &value);
        fields[i].type = type < 0 ? 0 : type;
        fields[i].timestamp_us = card->time_ns / 1000, fields[i].latency_us = 0;
        fields[i].value.ull = 0;
        if (type == UNSIGNED) fields[i].value.ui = (unsigned)value;
        else if (type == SIGNED) fields[i].value.si = (int)value;
        else fields[i].value.ull = (unsigned long long)value;
    }
    return SUCCESS;
}

/* --- what sets ------------------------------------------------------------------------------------------------------ */

/* Whether it is to be set: SUCCESS; a refusal's code; IGNORED, which succeeds and does nothing, where a fault says 1. */
static int may_set(const char *name, device_t card) {
    int64_t is_ignored = 0;
    int code = enter(name, card, &is_ignored);
    if (code) return code;
    return !state->root ? NO_PERMISSION : is_ignored ? IGNORED : SUCCESS;
}

static int set_limit(const char *name, device_t card, unsigned mw) {
    int code = may_set(name, card);
    if (code <= 0 && (mw < card->min_mw || mw > card->max_mw)) code = INVALID_ARGUMENT;
    if (!code) card->requested_mw = mw;
    return noted(name, card, code, mw, 0);
}

API nvmlDeviceSetPowerManagementLimit(device_t card, unsigned mw) {
    return set_limit("DeviceSetPowerManagementLimit", card, mw);
}

struct limit { unsigned version; unsigned scope; unsigned mw; };

API nvmlDeviceSetPowerManagementLimit_v2(device_t card, struct limit *limit) {
    return set_limit("DeviceSetPowerManagementLimit_v2", card, limit->mw);
}

API nvmlDeviceSetGpuLockedClocks(device_t card, unsigned least, unsigned most) {
    int code = may_set("DeviceSetGpuLockedClocks", card);
    if (code <= 0 && (least > most || most == 0)) code = INVALID_ARGUMENT;
    if (!code) card->lock_min_mhz = least, card->lock_max_mhz = most;
    return noted("DeviceSetGpuLockedClocks", card, code, least, most);
}

API nvmlDeviceResetGpuLockedClocks(device_t card) {
    int code = may_set("DeviceResetGpuLockedClocks", card);
    if (!code) card->lock_min_mhz = card->lock_max_mhz = 0;
    return noted("DeviceResetGpuLockedClocks", card, code, 0, 0);
}

/* --- events ----------------------------------------------------------------------------------------------------------*/

struct events { int64_t seen[LENGTH(((struct state *)0)->cards)]; };
struct event { device_t card; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

API nvmlEventSetCreate(struct events **set) {
    int code = enter("EventSetCreate", NULL, NULL);
    if (code) return code;
    *set = malloc(sizeof **set);
    for (int i = 0; i < LENGTH((*set)->seen); i++) (*set)->seen[i] = -1;
    return SUCCESS;
}

API nvmlDeviceRegisterEvents(device_t card, unsigned long long types, struct events *set) {
    int code = enter("DeviceRegisterEvents", card, NULL);
    if (!code && types & 8) set->seen[index_of(card)] = card->num_xids;
    return code;
}

API nvmlEventSetWait_v2(struct events *set, struct event *event, unsigned wait_ms) {
    int64_t until = now_ns() + wait_ms * 1000000LL;
    int code = enter("EventSetWait_v2", NULL, NULL);
    if (code) return code;
    do {
        for (int i = 0; i < state->num_cards; i++) {
            device_t card = &state->cards[i];
            if (set->seen[i] < 0 || set->seen[i] >= card->num_xids) continue;
            int64_t xid = card->xids[set->seen[i]++ % LENGTH(card->xids)];
            *event = (struct event){card, 8, (unsigned long long)xid, ~0U, ~0U};
            return SUCCESS;
        }
        if (wait_ms) sleep_ns(1000000);
    } while (now_ns() < until);
    return TIMEOUT;
}

API nvmlEventSetFree(struct events *set) {
    free(set);
    return SUCCESS;
}

/* --- activities (GPM) ------------------------------------------------------------------------------------------------*/

struct activity { int64_t time_ns, sm_ns, dram_ns, tensor_ns; };
struct metric { unsigned id; int code; double value; const char *short_name, *long_name, *unit; };
struct metrics { unsigned version, count; struct activity *first, *second; struct metric metrics[]; };
struct support { unsigned version, is_supported; };

API nvmlGpmQueryDeviceSupport(device_t card, struct support *support) {
    int code = enter("GpmQueryDeviceSupport", card, NULL);
    if (code) return code;
    if (support->version != 1) return VERSION_MISMATCH;
    support->is_supported = (unsigned)card->gpm;
    return SUCCESS;
}

API nvmlGpmSampleAlloc(struct activity **sample) {
    *sample = calloc(1, sizeof **sample);
    return enter("GpmSampleAlloc", NULL, NULL);
}

API nvmlGpmSampleFree(struct activity *sample) {
    free(sample);
    return SUCCESS;
}

API nvmlGpmSampleGet(device_t card, struct activity *sample) {
    int code = enter("GpmSampleGet", card, NULL);
    if (code) return code;
    if (!card->gpm) return NOT_SUPPORTED;
    *sample = (struct activity){card->time_ns, card->sm_ns, card->dram_ns, card->tensor_ns};
    return SUCCESS;
}

API nvmlGpmMetricsGet(struct metrics *asked) {
    int64_t value = -1;
    int code = enter("GpmMetricsGet", NULL, &value);
    if (code) return code;
    if (asked->version != 1) return VERSION_MISMATCH;
    struct activity *a = asked->first, *b = asked->second;
    double ns = (double)(b->time_ns - a->time_ns);
    for (unsigned i = 0; i < asked->count; i++) {
        struct metric *metric = &asked->metrics[i];
        int64_t busy = metric->id == 2 ? b->sm_ns - a->sm_ns : metric->id == 5 ? b->tensor_ns - a->tensor_ns : b->dram_ns - a->dram_ns;
        int is_known = metric->id == 2 || metric->id == 5 || metric->id == 10;
        metric->code = !is_known ? NOT_SUPPORTED : ns < 1e8 ? NO_DATA : SUCCESS;
        metric->value = value >= 0 ? (double)value : ns > 0 ? 100 * (double)busy / ns : 0;
    }
    return SUCCESS;
}
