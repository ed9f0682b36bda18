"""Where arrays lie on eight simulated devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpnlp.training.sharding import Placement

TREE = {
    "wide": np.arange(96.0).reshape(6, 16),
    "tall": np.arange(320.0).reshape(40, 8),
    "odd": np.arange(5.0),
    "one": 3.0,
}


def shard_shapes(array):
    return {shard.data.shape for shard in array.addressable_shards}


def test_everywhere_is_all_devices():
    assert Placement.everywhere() == Placement(8)
    assert Placement.everywhere(shard_parameters=True) == Placement(8, True)
    assert Placement().mesh.devices.tolist() == jax.devices()[:1]


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_each_device_gets_its_share_of_a_batch_in_order(devices):
    placement = Placement(devices)
    rows = np.arange(32.0).reshape(16, 2)
    placed = placement.batch({"host": rows, "device": jnp.asarray(rows), "flags": np.ones(16, bool)})
    for array in (placed["host"], placed["device"]):
        assert shard_shapes(array) == {(16 // devices, 2)}
        np.testing.assert_array_equal(array, rows)
        shards = sorted(array.addressable_shards, key=lambda shard: shard.index[0].start or 0)
        np.testing.assert_array_equal(np.concatenate([shard.data for shard in shards]), rows)
        assert len({shard.device for shard in shards}) == devices
    assert placed["flags"].dtype == bool


def test_a_state_lies_on_every_device_as_a_whole():
    placed = Placement(8).state(TREE)
    for name, leaf in TREE.items():
        assert shard_shapes(placed[name]) == {np.shape(leaf)}
        assert placed[name].sharding.is_fully_replicated
        np.testing.assert_array_equal(placed[name], leaf)


def test_spread_parameters_are_cut_along_their_longest_even_axis():
    placed = Placement(8, shard_parameters=True).state(TREE)
    assert {name: shard_shapes(array) for name, array in placed.items()} == {
        "wide": {(6, 2)},
        "tall": {(5, 8)},
        "odd": {(5,)},
        "one": {()},
    }
    for name, leaf in TREE.items():
        np.testing.assert_array_equal(placed[name], leaf)
        assert len(placed[name].sharding.device_set) == 8


def test_eight_devices_hold_an_eighth_of_spread_parameters_each():
    tree = {"wide": np.ones((64, 24), np.float32), "tall": np.ones((80, 8), np.float32)}
    whole = sum(leaf.nbytes for leaf in tree.values())
    placed = Placement(8, shard_parameters=True).state(tree)
    for device in jax.devices():
        own = (shard for array in placed.values() for shard in array.addressable_shards if shard.device == device)
        assert sum(shard.data.nbytes for shard in own) == whole // 8


@pytest.mark.parametrize("sharded", [False, True])
def test_what_a_compiled_function_pins_lies_where_a_state_lies(sharded):
    placement = Placement(8, sharded)
    made = jax.jit(lambda: placement.pinned({name: jnp.asarray(leaf) + 1 for name, leaf in TREE.items()}))()
    placed = placement.state(TREE)
    for name, leaf in TREE.items():
        assert made[name].sharding.is_equivalent_to(placed[name].sharding, np.ndim(leaf))
        np.testing.assert_array_equal(made[name], leaf + 1)
