"""The estimator against cards whose temperatures are known, and against what can be worked out by hand."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from tasks.governor import thermal
from tasks.governor.cards import CARDS, H100, randomised
from tasks.governor.plant import Plant

MODELS = thermal.bank(700.0, 1.0)


def steady(temperature_c: float, power_w: float, seconds: int = 200) -> thermal.Estimate:
    estimate = thermal.settled(MODELS, 700.0, temperature_c, power_w)
    for _ in range(seconds):
        estimate = thermal.corrected(MODELS, thermal.predicted(MODELS, estimate, power_w), temperature_c)
    return estimate


def test_one_interval_is_two_halves() -> None:
    """The discrete models are exact: one step of 2 s is two of 1 s."""
    state = (60.0, 62.0, 50.0, 30.0)
    for one, two in zip(MODELS, thermal.bank(700.0, 2.0), strict=True):
        twice = thermal._moved(one, thermal._moved(one, state, 500.0), 500.0)
        assert twice == pytest.approx(thermal._moved(two, state, 500.0), abs=1e-6)


def test_in_the_long_run_each_watt_has_its_degrees() -> None:
    """Left alone with a power the nominal model settles at inlet + power times both resistances."""
    model = thermal._model(0.02, 0.037, 1.0, 1.0, 5.0)
    state = (30.0, 30.0, 30.0, 30.0)
    for _ in range(400):
        state = thermal._moved(model, state, 500.0)
    assert state == pytest.approx((30 + 500 * 0.057, 30 + 500 * 0.057, 30 + 500 * 0.037, 30.0), abs=0.01)


def test_a_steady_card_is_known_to_be_steady() -> None:
    """At a temperature that has stood for long, the power allowed for that temperature is the power drawn."""
    estimate = steady(70.5, 500.0)
    assert thermal.die_c(estimate) == pytest.approx(70.5, abs=0.05)
    assert thermal.allowed_w(MODELS, estimate, 70.5, 500.0, 1.2) == pytest.approx(500.0, abs=5.0)
    assert thermal.ahead_c(MODELS, estimate, 500.0) == pytest.approx(70.5, abs=0.1)


def test_a_rise_is_thought_hotter_than_it_is_and_a_fall_is_not() -> None:
    """Caution shrinks what may be added to the present power, and not what must be taken away."""
    estimate = steady(70.5, 400.0)
    up = [thermal.allowed_w(MODELS, estimate, 74.0, 400.0, caution) - 400.0 for caution in (1.0, 1.2)]
    down = [thermal.allowed_w(MODELS, estimate, 67.0, 400.0, caution) for caution in (1.0, 1.2)]
    assert up[1] == pytest.approx(up[0] / 1.2, rel=1e-6)
    assert down[0] == down[1] < 400.0


@pytest.mark.parametrize("name", sorted(CARDS))
def test_the_die_is_known_to_a_degree_through_steps_of_the_load(name: str) -> None:
    """From whole degrees, rounded down and late, the die's temperature is told within 1.5 °C RMS, on a card that is unlike
    the models: resistances and capacities within 40 %."""
    card = randomised(CARDS[name], np.random.default_rng(5), 0.4)
    plant = Plant([card], 27.0)
    models = thermal.bank(card.default_w, 1.0)
    estimate, errors = None, []
    for second in range(600):
        plant.prefill[:], plant.sequences[:] = float(second // 60 % 2), float(second // 100 % 3 > 0)
        plant.run(1)
        reading, power = float(plant.sensors.temperature_c[0]) + 0.5, float(plant.sensors.power_w[0])
        if estimate is None:
            estimate = thermal.settled(models, card.default_w, reading, power)
        estimate = thermal.corrected(models, thermal.predicted(models, estimate, power), reading)
        errors.append(thermal.die_c(estimate) - float(plant.die_c[0]))
    assert math.sqrt(np.mean(np.square(errors[60:]))) < 1.5


def test_models_that_are_right_weigh_more() -> None:
    """A card with a small die and a good contact is told from one with the opposite, by steps of its load."""
    shares = []
    for die_r, tau in ((0.013, 1.3), (0.026, 5.2)):
        plant = Plant([replace(H100, die_r=die_r, die_tau_s=tau)], 25.0)
        estimate = thermal.settled(MODELS, 700.0, 30.0, 70.0)
        for second in range(300):
            plant.prefill[:], plant.sequences[:] = float(second // 15 % 2), 1.0
            plant.run(1)
            estimate = thermal.predicted(MODELS, estimate, float(plant.sensors.power_w[0]))
            estimate = thermal.corrected(MODELS, estimate, float(plant.sensors.temperature_c[0]) + 0.5)
        weights = [math.exp(weight) for weight in estimate.weights]
        shares.append(sum(weights[:3]) / sum(weights))
    assert shares[0] > 0.8
    assert shares[1] < 0.2


def test_gains_take_up_the_unknown_first_and_become_steady() -> None:
    """Gains are never negative, and the last ones no longer change."""
    for model in MODELS:
        assert all(gain >= 0 for gains in model.gains for gain in gains)
        assert all(b <= a + 1e-9 for a, b in pairwise([gains[3] for gains in model.gains[20:]]))
        assert model.gains[-1] == pytest.approx(model.gains[-2], abs=2e-3)
