"""Tests of the Python package; scripts/python.sh builds it and runs them."""

import html
import json
import os
import struct
import subprocess
import tempfile
import unittest

import wgrad


def field(number, value):
    """A field of a protocol buffer: an int, or bytes and text with their length."""

    def varint(n):
        out = bytearray()
        while n > 127:
            out.append(n & 127 | 128)
            n >>= 7
        return bytes(out + bytes([n]))

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def onnx_model(batch):
    """relu(x · w) with x [batch, 3] and w [3, 4]; `batch` is a number, or the name of an open dimension."""
    data = struct.pack("<12f", *range(12))
    weight = field(1, 3) + field(1, 4) + field(2, 1) + field(8, "w") + field(9, data)

    def dim(value):
        return field(1, field(1 if isinstance(value, int) else 2, value))

    def port(name, dims):
        tensor = field(1, 1) + field(2, b"".join(dim(value) for value in dims))
        return field(1, name) + field(2, field(1, tensor))

    product = field(1, "x") + field(1, "w") + field(2, "h") + field(4, "MatMul")
    relu = field(1, "h") + field(2, "y") + field(4, "Relu")
    graph = field(1, product) + field(1, relu) + field(2, "net") + field(5, weight)
    graph += field(11, port("x", [batch, 3])) + field(12, port("y", [batch, 4]))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path


class Plans(unittest.TestCase):
    def test_plan_has_the_bytes_of_the_plan(self):
        plan = wgrad.plan("mlp", batch=64, limits="nvidia")
        self.assertEqual((plan["model"], plan["batch"], plan["optimizer"]), ("mlp", 64, "adam"))
        self.assertEqual(plan["parameters"], 784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10)
        device = plan["device_bytes"]
        self.assertEqual(device["total"], sum(bytes for part, bytes in device.items() if part != "total"))
        self.assertEqual(device["arenas"], sum(arena["bytes"] for arena in plan["arenas"]))
        self.assertGreaterEqual(plan["peak_bytes"], plan["lower_bound_bytes"])
        names = {tensor["name"] for tensor in plan["tensors"]}
        self.assertTrue({"x", "y"} <= names, names)
        self.assertEqual(plan["hash"], wgrad.plan("mlp", 64, limits="nvidia")["hash"])

    def test_options_change_the_plan(self):
        total = lambda **options: wgrad.plan("lenet", batch=64, **options)["device_bytes"]["total"]
        self.assertLess(total(optimizer="sgd"), total(optimizer="adam"))
        self.assertLess(total(accumulate=4), total())
        cnn = lambda **options: wgrad.plan("cnn", batch=128, **options)["device_bytes"]["total"]
        self.assertLess(cnn(), cnn(rebuild=False, fuse=False))
        self.assertEqual(wgrad.plan("gpt-nano", batch=2, seq=32)["seq"], 32)
        self.assertGreater(total(classes=1000), total(classes=10))

    def test_budget_is_compared_and_fitted(self):
        roomy = wgrad.plan("lenet", batch=64, budget="1GB")
        self.assertTrue(roomy["fits"])
        self.assertEqual((roomy["budget_bytes"], roomy["levers"]), (1_000_000_000, []))
        self.assertGreater(roomy["max_batch"], 64)
        budget = roomy["device_bytes"]["total"] - 200_000
        tight = wgrad.plan("lenet", batch=64, budget=budget)
        self.assertFalse(tight["fits"])
        self.assertTrue(tight["levers"] and tight["cheapest"])
        fitted = wgrad.plan("lenet", batch=64, budget=budget, fit=True)
        self.assertTrue(fitted["fits"] and fitted["changes"])
        self.assertLessEqual(fitted["device_bytes"]["total"], budget)

    def test_notebooks_show_the_page(self):
        plan = wgrad.plan("digits", batch=8)
        page = plan.html()
        self.assertTrue(page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>"), page[:80])
        self.assertIn("digits, batch 8, adam", page)
        frame = plan._repr_html_()
        document = frame.split('srcdoc="')[1].split('"')[0]
        self.assertEqual(html.unescape(document), page)
        self.assertEqual(repr(plan), "<wgrad.Plan of digits, batch 8, adam: {:,} bytes>".format(plan["device_bytes"]["total"]))
        self.assertIn("total", str(plan))

    def test_arguments_that_cannot_be_are_value_errors(self):
        for options, word in [
            ({"model": "resnet5000"}, "resnet50"),
            ({"batch": 0}, "at least 1"),
            ({"batch": -1}, "at least 0"),
            ({"optimizer": "sdg"}, "momentum"),
            ({"budget": "8 potatoes"}, "8 potatoes"),
            ({"budget": -8}, "at least 0"),
            ({"precision": "f8"}, "bf16"),
            ({"weights": "f64"}, "bf16"),
            ({"stochastic_rounding": True}, "bf16"),
            ({"limits": "tpu"}, "nvidia"),
            ({"recompute": "all"}, "every:N"),
            ({"offload": "all"}, "activations:SIZE"),
            ({"accumulate": 3}, "divide"),
            ({"accumulate": 0}, "divide"),
            ({"image": 0}, ""),
        ]:
            with self.subTest(options), self.assertRaises(ValueError) as caught:
                wgrad.plan(**{"model": "mlp", "batch": 8, **options})
            self.assertIn(word, str(caught.exception))
        with self.assertRaisesRegex(TypeError, "optimiser; known: optimizer"):
            wgrad.plan("mlp", optimiser="adam")
        for options in [{"batch": "many"}, {"optimizer": 3}, {"budget": 2.5}, {"fit": "yes"}, {"clip_norm": "1"}]:
            with self.subTest(options), self.assertRaisesRegex(TypeError, "{} must be".format(*options)):
                wgrad.plan("mlp", **options)

    def test_adapters_and_ranks_are_planned(self):
        whole = wgrad.plan("smollm2-135m", 1, seq=64)
        lora = wgrad.plan("smollm2-135m", 1, seq=64, lora="r=4", frozen_weights="nf4")
        self.assertEqual(lora["frozen_weights"], "nf4")
        self.assertLess(4 * lora["device_bytes"]["total"], whole["device_bytes"]["total"])
        frozen = wgrad.plan("mlp", 8, freeze=["fc1.*", "fc2.*"], loss_scale=True, budget=10**9)
        self.assertEqual((frozen["freeze"], frozen["budget_bytes"]), (["fc1.*", "fc2.*"], 10**9))
        self.assertLess(frozen["trained_parameters"], frozen["parameters"])
        sharded = wgrad.plan("mlp", 8, ranks=4, shard="optimizer", accumulate=4)
        self.assertEqual((sharded["ranks"], sharded["shard"]), (4, "optimizer"))
        with self.assertRaisesRegex(ValueError, "set lora or freeze"):
            wgrad.plan("mlp", frozen_weights="int8")

    def test_models_are_those_that_can_be_planned(self):
        self.assertIn("resnet50", wgrad.models())
        self.assertIn("gpt2", wgrad.models())

    @unittest.skipUnless(os.environ.get("WGRAD_PROGRAM"), "WGRAD_PROGRAM names no program `wgrad`")
    def test_keys_are_those_of_the_program(self):
        program = [os.environ["WGRAD_PROGRAM"], "plan", "mlp", "--batch", "64", "--json"]
        for more, options in [([], {}), (["--budget", "1GB"], {"budget": "1GB"})]:
            printed = json.loads(subprocess.check_output(program + more))
            self.assertEqual(printed, dict(wgrad.plan("mlp", 64, **options)))


class Onnx(Folder):
    def test_open_dimensions_are_given(self):
        path = self.write("open.onnx", onnx_model("rows"))
        plan = wgrad.plan_onnx(path, batch=8)
        self.assertEqual((plan["batch"], plan["parameters"]), (8, 12))
        self.assertEqual(plan["hash"], wgrad.plan_onnx(path, sizes={"rows": 8})["hash"])
        shapes = {tensor["name"]: tensor["shape"] for tensor in plan["tensors"]}
        self.assertEqual((shapes["x"], shapes["labels"]), ([8, 3], [8]))
        budget = wgrad.plan_onnx(path, batch=8, budget="1MB", optimizer="sgd")
        self.assertTrue(budget["fits"] and budget["max_batch"] > 8)
        with self.assertRaisesRegex(wgrad.Error, "rows"):
            wgrad.plan_onnx(path)

    def test_fixed_dimensions_stay(self):
        path = self.write("fixed.onnx", onnx_model(4))
        plan = wgrad.plan_onnx(path, budget="1MB")
        self.assertEqual((plan["batch"], plan["fits"], plan["max_batch"]), (4, True, None))
        with self.assertRaisesRegex(wgrad.Error, "dynamic first dimension"):
            wgrad.plan_onnx(path, batch=8)
        with self.assertRaisesRegex(ValueError, "dynamic first dimension"):
            wgrad.plan_onnx(path, accumulate=2)

    def test_other_files_are_refused(self):
        with self.assertRaisesRegex(wgrad.Error, "not an ONNX file|no graph"):
            wgrad.plan_onnx(self.write("text.onnx", b"not a network"))
        with self.assertRaises(wgrad.Error):
            wgrad.plan_onnx(os.path.join(self.folder, "absent.onnx"))


class Memory(Folder):
    ITEMS = [(0, 2, 400), (1, 3, 300), (2, 4, 400)]

    def test_pack_places_items_apart(self):
        packed = wgrad.pack(self.ITEMS)
        self.assertEqual((packed["height"], packed["lower_bound"], packed["optimal"]), (700, 700, True))
        placed = list(zip(self.ITEMS, packed["offsets"]))
        for i, ((a, b, size), at) in enumerate(placed):
            for (c, d, other), place in placed[:i]:
                self.assertTrue(b <= c or d <= a or at + size <= place or place + other <= at)
        items = [{"id": "a", "lower": 0, "upper": 1, "size": 3}, {"lower": 0, "upper": 1, "size": 5, "alignment": 256}]
        self.assertTrue(all(offset % 256 == 0 for offset in wgrad.pack(items)["offsets"][1:]))
        self.assertEqual(wgrad.pack([])["height"], 0)

    def test_pack_refuses_what_cannot_be(self):
        with self.assertRaisesRegex(wgrad.Error, "700 bytes, more than the capacity of 600"):
            wgrad.pack(self.ITEMS, capacity=600)
        self.assertEqual(wgrad.pack(self.ITEMS, capacity=700)["height"], 700)
        for items, word in [([(2, 2, 5)], "upper end above"), ([(0, 1)], "2 numbers"), ([{"size": 1}], "lower, upper"), ([(0, 1, -5)], "-5")]:
            with self.assertRaisesRegex(ValueError, word):
                wgrad.pack(items)
        with self.assertRaisesRegex(ValueError, "exact"):
            wgrad.pack(self.ITEMS, effort="hard")

    def test_replay_measures_strategies(self):
        path = self.write("trace.csv", b"id,lower,upper,size\n0,0,2,400\n1,1,3,300\n2,2,4,400\n")
        replayed = wgrad.replay(path, strategy=["offline-planner", "pytorch"])
        self.assertEqual([outcome["strategy"] for outcome in replayed["strategies"]], ["offline-planner", "pytorch"])
        self.assertEqual((replayed["blocks"], replayed["lower_bound_bytes"]), (3, 700))
        self.assertGreater(len(wgrad.replay(path)["strategies"]), 5)
        with self.assertRaisesRegex(ValueError, "offline-planner"):
            wgrad.replay(path, strategy="best")
        with self.assertRaises(wgrad.Error):
            wgrad.replay(os.path.join(self.folder, "absent.csv"))


if __name__ == "__main__":
    unittest.main()
