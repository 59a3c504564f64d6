"""Plans the memory of training steps to the byte, before the run. No GPU is needed.

>>> import wgrad
>>> plan = wgrad.plan("resnet50", batch=64, optimizer="adam", limits="nvidia")
>>> plan["device_bytes"]["total"]    # what a session would create
>>> print(plan)                      # by class
>>> plan                             # in a notebook: every tensor at its address over its lifetime
"""

import html
import json
import os

from ._native import Error
from . import _native

__all__ = ["Error", "Plan", "models", "pack", "plan", "plan_onnx", "replay"]

# The options of a plan and the types of their values. The compiled half checks the values.
_SETTINGS = {
    "optimizer": str,
    "budget": str,
    "fit": bool,
    "max_batch": bool,
    "max_seq": bool,
    "precision": str,
    "weights": str,
    "stochastic_rounding": bool,
    "freeze": str,
    "lora": str,
    "frozen_weights": str,
    "limits": str,
    "recompute": str,
    "rebuild": bool,
    "fuse": bool,
    "bit_masks": bool,
    "accumulate": int,
    "ranks": int,
    "shard": str,
    "shares": str,
    "tensor": int,
    "offload": str,
    "card": str,
    "clip_norm": float,
    "loss_scale": bool,
}


def _count(what, value):
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("{} must be an int, not {}".format(what, type(value).__name__))
    if not 0 <= value < 1 << 64:
        raise ValueError("{} {}: it must be at least 0 and below 2**64".format(what, value))
    return value


def _optional(what, value):
    return None if value is None else _count(what, value)


def _setting(name, value):
    kind = _SETTINGS[name]
    if name == "budget" and not isinstance(value, str):
        return "{}B".format(_count(name, value))
    if kind is int:
        return str(_count(name, value))
    if not isinstance(value, (int, float) if kind is float else kind):
        expected = "a number" if kind is float else kind.__name__
        raise TypeError("{} must be {}, not {}".format(name, expected, type(value).__name__))
    return str(value).lower() if kind is bool else str(value)


def _settings(given, **sizes):
    unknown = sorted(set(given) - set(_SETTINGS))
    if unknown:
        known = ", ".join(_SETTINGS)
        raise TypeError("there is no option {}; known: {}".format(", ".join(unknown), known))
    settings = [(name, str(size)) for name, size in sizes.items() if size is not None]
    for name, value in given.items():
        # Only patterns may be several.
        values = value if name == "freeze" and isinstance(value, (list, tuple)) else [value]
        settings += [(name, _setting(name, value)) for value in values if value is not None]
    return settings


class Plan(dict):
    """A plan: the keys of ``wgrad plan --json``. ``print(plan)`` shows its bytes by class, a notebook its picture."""

    def __init__(self, planned):
        super().__init__(json.loads(planned.json()))
        self._planned = planned

    def html(self):
        """Returns the page of ``wgrad plan --html``: one file that needs no network."""
        return self._planned.html()

    def _repr_html_(self):
        # A document of its own, so that its style and scripts do not meet those of the notebook.
        page = html.escape(self.html(), quote=True)
        return '<iframe srcdoc="{}" style="width: 100%; height: 720px; border: 0"></iframe>'.format(page)

    def __repr__(self):
        return "<wgrad.Plan of {}: {:,} bytes>".format(self._planned.title(), self["device_bytes"]["total"])

    def __str__(self):
        return self._planned.text()


def models():
    """Returns the names of the networks that ``plan`` knows."""
    return list(_native.models())


def plan(model, batch=128, *, image=None, classes=None, seq=None, **settings):
    """Plans a training step of a known network.

    ``batch``: samples per step. ``image``: rows and columns, or one number for both; ``classes``; ``seq``: tokens in a
    sequence. Each has the network's own value by default. The other options are those of ``wgrad plan``:

    - ``optimizer``: sgd, momentum, adam, adamw, lion, adafactor, adam8bit, adam4bit, adam-mini, muon, apollo or apollo-mini
    - ``budget``: the bytes that a session may create, such as ``"8GB"`` or a number. The plan may need more: see ``fits``,
      ``levers`` and ``cheapest`` in the result. ``fit=True`` chooses the cheapest plan that fits, ``max_batch=True`` searches
      for the largest batch with ``recompute="auto"``, too, ``max_seq=True`` for the longest sequence.
    - ``precision``, ``weights``: f32, f16 or bf16 for activations and weights in memory, int8 or int4 for activations, bf24 for weights;
      ``stochastic_rounding``
    - ``limits``: discrete, webgpu, lavapipe, swiftshader, nvidia, rdna, arc, steam-deck or apple
    - ``recompute``: off, auto (with a budget), every:N, sqrt, policy or named:PATH,PATH
    - ``offload``: off, optimizer, activations, activations:SIZE or activations:PATH+PATH
    - ``card``: the card that times are modelled on: rtx3060, h200, h100, a100, rtx4090, rx7900xtx, arc-b580, m2-max or
      steam-deck
    - ``lora``: adapters in place of the model, such as ``"r=16,alpha=32"`` or ``"r=16,dora=true"``; ``freeze``: patterns of parameters that are not
      trained; ``frozen_weights``: their storage, int8, int4 or nf4 as well
    - ``ranks``: devices that share the batch; ``shard``: none, optimizer or parameters
    - ``accumulate``: parts of the batch; ``rebuild``, ``fuse``, ``bit_masks``, ``clip_norm``, ``loss_scale``

    Raises ``ValueError`` for arguments that cannot be, ``wgrad.Error`` for a step that cannot be planned.
    """
    if isinstance(image, int):
        image = (image, image)
    if image is not None:
        image = "x".join(str(_count("image", side)) for side in image)
    batch, classes, seq = _count("batch", batch), _optional("classes", classes), _optional("seq", seq)
    return Plan(_native.plan(model, _settings(settings, batch=batch, image=image, classes=classes, seq=seq)))


def plan_onnx(path, batch=None, sizes=None, **settings):
    """Plans a training step of the network in an ONNX file, with cross-entropy or the mean squared error as its loss.

    ``batch``: the first dimension of inputs, where the file leaves it open. ``sizes``: other open dimensions, by the
    file's name of them or as ``"INPUT.AXIS"``. The options are those of ``plan``.
    """
    lengths = [("dim", "{}={}".format(name, _count("size " + str(name), size))) for name, size in (sizes or {}).items()]
    return Plan(_native.plan_onnx(os.fspath(path), lengths + _settings(settings, batch=_optional("batch", batch))))


def pack(items, capacity=None, *, effort="balanced"):
    """Packs buffers with known lifetimes into as few bytes as possible.

    An item is ``(lower, upper, size)`` or ``(lower, upper, size, alignment)``, alive on [lower, upper), or a mapping with
    these keys and perhaps ``id``. Returns the keys of ``wgrad pack --json`` and ``offsets``, one for each item in their
    order. Stops as soon as ``capacity`` is reached, and raises ``wgrad.Error`` if it is not. ``effort`` is fast, balanced
    or exact.
    """
    given = []
    for i, item in enumerate(items):
        if hasattr(item, "keys"):
            keys = ("lower", "upper", "size")
            missing = [key for key in keys if key not in item]
            if missing:
                raise ValueError("item {} has no {}".format(i, ", ".join(missing)))
            numbers = [item[key] for key in keys] + [item.get("alignment", 1)]
            name = str(item.get("id", i))
        else:
            numbers, name = list(item), str(i)
            if len(numbers) not in (3, 4):
                raise ValueError("item {} has {} numbers: lower, upper, size and perhaps alignment".format(i, len(numbers)))
            numbers += [1] * (4 - len(numbers))
        given.append((name, *(_count("a number of item {}".format(name), number) for number in numbers)))
    report, offsets = _native.pack(given, _optional("capacity", capacity), effort)
    return {**json.loads(report), "offsets": offsets}


def replay(path, strategy="all", *, capacity=None, device=None):
    """Replays an allocation trace through pool strategies: a memory snapshot of PyTorch (pickle), lifetimes (CSV) or an
    event log of wgrad.

    ``strategy``: names, separated by commas or in a list. ``capacity``: the bytes that a strategy may reserve.
    ``device``: which device of a snapshot. Returns the keys of ``wgrad replay --json``, for this file.
    """
    if not isinstance(strategy, str):
        strategy = ",".join(strategy)
    capacity, device = _optional("capacity", capacity), _optional("device", device)
    return json.loads(_native.replay_trace(os.fspath(path), strategy, capacity, device))
