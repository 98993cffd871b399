"""How hot the die gets for each W: an estimator that is given readings, and answers with the power that it could stand.

Heat goes from the die to a heatsink and from there to the air. How well, nobody has told: a bank of models, each with its
own resistance and heat capacity of the die, runs along, and weighs as much as it has been right. Each is a Kalman filter on
[sensor, die, heatsink, inlet], with the measured power as its input. The inlet is a random walk: what it takes up is the
air, the fans and the error in the resistance to the air, so that no model is biased in the long run.

Invariant: with a hotter reading no model is cooler than with a cooler one, and allows no more power.
"""

from dataclasses import dataclass
from functools import cache
from math import exp

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Gain = tuple[float, float, float, float]

DIE_K, SINK_K = 15.0, 29.5
"""What die and heatsink rise by at the default power limit, °C: five cards of 300-700 W have 14-16.5 and 26-33 (estimates
from public temperatures at a power, gpu-power-notes section 4)."""

DIE_TAU_S, SINK_TAU_S, SENSOR_LAG_S = 3.0, 47.0, 0.8
"""Time constants (public logs: a plateau within about 60 s; die and sensor are estimates)."""

_DIE_R = (0.62, 0.9, 1.3)
_DIE_C = (0.65, 0.95, 1.35)
"""Resistances and heat capacities of the die in the bank, times the above: slots differ by 40 % (12 °C between neighbours
at 698 W in one public box of eight)."""

_NOISE_C2 = 0.15
"""Variance of a reading: rounded down to whole °C (1/12), and what else there is (estimate)."""

_WALK_C2 = (0.0, 0.02, 0.004, 0.05)
"""What the model does not know, as variance in a second: of sensor, die, heatsink and inlet (tuned in simulation)."""

_START_C2 = (0.3, 1.0, 30.0, 100.0)
NEGLIGIBLE = -6.0
"""Models with a lower logarithm of their weight do not count."""

_FORGET = 0.995
_SCHEDULE = 90
"""Gains of the first readings are those of a filter that knows nothing; from there on they are steady."""

HORIZONS_S = (3.0, 6.0)
"""How far ahead the allowed power is looked at. The die follows power within seconds, and power can be taken back each
second: looking further ahead only costs tokens."""


@dataclass(frozen=True, slots=True)
class Model:
    """One guess, made discrete. Rows are what a state is made of after `dt`: coefficients of sensor, die, heatsink and
    inlet, and of power (°C/W). `gains` are those of the n-th reading. `ahead` is, for each horizon, how die, heatsink,
    inlet and power make the die's temperature then."""

    sensor: tuple[float, float, float, float, float]
    die: tuple[float, float, float, float]
    sink: tuple[float, float, float, float]
    gains: tuple[Gain, ...]
    variances: tuple[float, ...]
    ahead: tuple[tuple[float, float, float, float], ...]


State = tuple[float, float, float, float]
"""Temperatures of sensor, die, heatsink and inlet, °C."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is thought after `count` readings: a state for each model, and the logarithm of its weight."""

    states: tuple[State, ...]
    weights: tuple[float, ...]
    count: int


@cache
def bank(default_w: float, dt_s: float) -> tuple[Model, ...]:
    """The models of a card with such a power limit, read every `dt_s`."""
    return tuple(_model(DIE_K / default_w, SINK_K / default_w, r, c, dt_s) for r in _DIE_R for c in _DIE_C)


def settled(models: tuple[Model, ...], default_w: float, temperature_c: float, power_w: float) -> Estimate:
    """As if the card had been drawing so much for long."""
    states = []
    for r in _DIE_R:
        sink = temperature_c - power_w * r * DIE_K / default_w
        states += [(temperature_c, temperature_c, sink, sink - power_w * SINK_K / default_w)] * len(_DIE_C)
    return Estimate(tuple(states), (0.0,) * len(models), 0)


def predicted(models: tuple[Model, ...], estimate: Estimate, power_w: float) -> Estimate:
    """One interval on, without a reading."""
    states = tuple(_moved(model, state, power_w) for model, state in zip(models, estimate.states, strict=True))
    return Estimate(states, estimate.weights, estimate.count)


def corrected(models: tuple[Model, ...], estimate: Estimate, temperature_c: float) -> Estimate:
    """With a reading, in the middle of the degree that it stands for."""
    at = min(estimate.count, _SCHEDULE - 1)
    states, weights = [], []
    for model, (sensor, die, sink, inlet), weight in zip(models, estimate.states, estimate.weights, strict=True):
        error = temperature_c - sensor
        a, b, c, d = model.gains[at]
        states.append((sensor + a * error, die + b * error, sink + c * error, inlet + d * error))
        weights.append(_FORGET * weight - 0.5 * min(error * error, 9.0) / model.variances[at])
    best = max(weights)
    return Estimate(tuple(states), tuple([weight - best for weight in weights]), estimate.count + 1)


def die_c(estimate: Estimate) -> float:
    """The die's temperature, °C: the mean of the models by their weights."""
    total = mean = 0.0
    for state, weight in zip(estimate.states, estimate.weights, strict=True):
        share = exp(weight)
        total += share
        mean += share * state[1]
    return mean / total


def shifted(estimate: Estimate, temperature_c: float) -> Estimate:
    """With all temperatures of each model moved alike, so that its sensor has what was read."""
    states = []
    for sensor, die, sink, inlet in estimate.states:
        by = temperature_c + 0.5 - sensor
        states.append((temperature_c + 0.5, die + by, sink + by, inlet + by))
    return Estimate(tuple(states), estimate.weights, estimate.count)


def ahead_of_c(estimate: Estimate, temperature_c: float) -> float:
    """By how much the sensor should at least be hotter than a reading, °C: by the coolest of the models that count."""
    coolest = min(state[0] for state, weight in zip(estimate.states, estimate.weights, strict=True) if weight >= NEGLIGIBLE)
    return coolest - temperature_c - 0.5


def allowed_w(models: tuple[Model, ...], estimate: Estimate, set_point_c: float, power_w: float, caution: float) -> float:
    """The power that takes the die to the set point and no further, drawn from now on. A rise over `power_w` is thought to
    heat `caution` times as much as it should."""
    total = mean = 0.0
    for model, state, weight in zip(models, estimate.states, estimate.weights, strict=True):
        if weight < NEGLIGIBLE:
            continue
        share = exp(weight)
        total += share
        mean += share * min(_reach(row, state, set_point_c, power_w, caution) for row in model.ahead)
    return mean / total


def ahead_c(models: tuple[Model, ...], estimate: Estimate, power_w: float) -> float:
    """The die's temperature at the first horizon with so much power from now on, °C."""
    total = mean = 0.0
    for model, state, weight in zip(models, estimate.states, estimate.weights, strict=True):
        die, sink, inlet, heat = model.ahead[0]
        share = exp(weight)
        total += share
        mean += share * (die * state[1] + sink * state[2] + inlet * state[3] + heat * power_w)
    return mean / total


def _reach(
    row: tuple[float, float, float, float], state: State, set_point_c: float, power_w: float, caution: float
) -> float:
    die, sink, inlet, heat = row
    room = set_point_c - (die * state[1] + sink * state[2] + inlet * state[3] + heat * power_w)
    return power_w + room / (heat * caution if room > 0 else heat)


def _moved(model: Model, state: State, power_w: float) -> State:
    s, d, h, i = state
    a, b, c, e, p = model.sensor
    f, g, k, q = model.die
    m, n, o, r = model.sink
    return (
        a * s + b * d + c * h + e * i + p * power_w,
        f * d + g * h + k * i + q * power_w,
        m * d + n * h + o * i + r * power_w,
        i,
    )


def _model(die_r: float, sink_r: float, r: float, c: float, dt_s: float) -> Model:
    """The two-node model with the die's resistance times `r` and its heat capacity times `c`."""
    rate = _rates(die_r * r, sink_r, DIE_TAU_S / die_r * c, SINK_TAU_S / sink_r)
    step = _exponential(rate, dt_s)
    gains, variances = _gains(step, dt_s)
    ahead = tuple(tuple(float(x) for x in _exponential(rate, at)[1, 1:]) for at in HORIZONS_S)
    return Model(
        sensor=tuple(float(x) for x in step[0]),  # type: ignore[arg-type]
        die=tuple(float(x) for x in step[1, 1:]),  # type: ignore[arg-type]
        sink=tuple(float(x) for x in step[2, 1:]),  # type: ignore[arg-type]
        gains=gains,
        variances=variances,
        ahead=ahead,  # type: ignore[arg-type]
    )


def _rates(die_r: float, sink_r: float, die_c: float, sink_c: float) -> Floats:
    """d/dt of [sensor, die, heatsink, inlet, power]; shape (5, 5)."""
    rate = np.zeros((5, 5))
    rate[0, :2] = -1 / SENSOR_LAG_S, 1 / SENSOR_LAG_S
    rate[1, 1:3] = -1 / (die_r * die_c), 1 / (die_r * die_c)
    rate[1, 4] = 1 / die_c
    rate[2, 1:4] = 1 / (die_r * sink_c), -(1 / die_r + 1 / sink_r) / sink_c, 1 / (sink_r * sink_c)
    return rate


def _exponential(rate: Floats, dt_s: float) -> Floats:
    """exp(rate · dt), by its series at a 2⁻¹⁰th of the time, squared ten times."""
    small = rate * (dt_s / 1024)
    result = np.eye(5)
    for order in range(6, 0, -1):
        result = np.eye(5) + small @ result / order
    for _ in range(10):
        result = result @ result
    return result


def _gains(step: Floats, dt_s: float) -> tuple[tuple[Gain, ...], tuple[float, ...]]:
    """Of the n-th reading: the Kalman gain, and the variance that its error should have. No gain is negative, so that a
    hotter reading makes nothing cooler."""
    a = step[:4, :4]
    noise = np.diag(_WALK_C2) * dt_s
    covariance = np.diag(_START_C2)
    gains, variances = [], []
    for _ in range(_SCHEDULE):
        covariance = a @ covariance @ a.T + noise
        variance = covariance[0, 0] + _NOISE_C2
        gain = np.maximum(covariance[:, 0] / variance, 0.0)
        covariance = covariance - np.outer(gain, covariance[0])
        gains.append((float(gain[0]), float(gain[1]), float(gain[2]), float(gain[3])))
        variances.append(float(variance))
    return tuple(gains), tuple(variances)
