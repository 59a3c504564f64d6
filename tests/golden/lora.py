#!/usr/bin/env python3
"""Writes adapters as PEFT saves them and what PyTorch computes with them. Run by hand, after llama.py and gpt2.py:

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.24.0 peft==0.21.2 safetensors numpy
    venv/bin/python tests/golden/lora.py

lora/NAME/: adapters with random matrices, rank 4 and alpha 6, as `save_pretrained` writes them: over llama/llama, for q_proj,
v_proj and down_proj, and over gpt2_model.safetensors, for c_attn, whose weight is [in, out]. lora/NAME-dora/: the same with DoRA, whose
lengths of rows are 0.5 to 1.5 times those of the base.

lora/NAME.safetensors: computed in float64 and rounded once.
    ids, labels i32 [2,17]; logits [2,17,classes]
    losses [6]: the mean cross-entropy before each of 5 steps of SGD with learning rate 0.1 on the adapters, and after them
    grad/P: its gradient in each parameter of the first block, P as in the folder without `base_model.model.`

    venv/bin/python tests/golden/lora.py --check NAME FOLDER [MERGED]

loads FOLDER, such as `Session::save_adapter` wrote it, over the base model and compares every matrix and the logits with these;
and MERGED, a file of `Session::save_with`, without PEFT.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from gpt2 import CONFIG, MODEL
from llama import loss_of, losses_of, narrow

HERE = Path(__file__).resolve().parent
TARGETS = {"llama": ["q_proj", "v_proj", "down_proj"], "gpt2": ["c_attn"]}
CLASSES = {"llama": 53, "gpt2": 61}


def base(name):
    name = name.removesuffix("-dora")
    if name == "llama":
        kind = transformers.AutoModelForCausalLM
        return kind.from_pretrained(HERE / "llama/llama", attn_implementation="eager", dtype=torch.float64).eval()
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**CONFIG)).eval()
    model.load_state_dict(load_file(MODEL), strict=False)
    model.tie_weights()
    return model.double()


def write(name, generator):
    network, dora = name.removesuffix("-dora"), name.endswith("-dora")
    config = LoraConfig(
        r=4,
        lora_alpha=6,
        target_modules=TARGETS[network],
        fan_in_fan_out=network == "gpt2",
        use_dora=dora,
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(base(name), config, autocast_adapter_dtype=False).eval()
    adapters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for full, parameter in adapters.items():
            if "magnitude" in full:
                parameter.mul_(0.5 + torch.rand(parameter.shape, generator=generator)).copy_(parameter.float())
            else:
                parameter.copy_((0.2 * torch.randn(parameter.shape, generator=generator)).float())
    folder = HERE / "lora" / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    entries = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": None}
    (folder / "adapter_config.json").write_text(json.dumps(entries, indent=2, sort_keys=True) + "\n")
    stored = {n: t.float().contiguous() for n, t in load_file(folder / "adapter_model.safetensors").items()}
    save_file(stored, folder / "adapter_model.safetensors", {"format": "pt"})
    ids, labels = (torch.randint(0, CLASSES[network], (2, 17), generator=generator) for _ in range(2))
    logits, loss = loss_of(model, ids, labels)
    loss.backward()
    values = {"ids": ids, "labels": labels, "logits": logits.detach()}
    for full, parameter in adapters.items():
        short = full.removeprefix("base_model.model.").replace(".default.", ".")
        short = short.removesuffix(".weight") if "magnitude" in short else short
        if ".0." in short:
            values[f"grad/{short}"] = parameter.grad.clone()
    values["losses"] = losses_of(model, adapters.values(), ids, labels)
    save_file(narrow(values), HERE / "lora" / f"{name}.safetensors")
    print(name, values["losses"].tolist())


def check(name, folder, merged):
    golden = load_file(HERE / "lora" / f"{name}.safetensors")
    model = PeftModel.from_pretrained(base(name), folder).eval()
    ours = load_file(Path(folder) / "adapter_model.safetensors")
    theirs = load_file(HERE / "lora" / name / "adapter_model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    difference = (model(golden["ids"].long()).logits - golden["logits"]).abs().max().item()
    assert difference < 1e-4, difference
    print(f"{name}: every matrix is the same, logits differ by {difference:.2g}")
    if merged:
        plain = base(name)
        missing, unexpected = plain.load_state_dict(load_file(merged), strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
        plain.tie_weights()
        difference = (plain(golden["ids"].long()).logits - golden["logits"]).abs().max().item()
        assert difference < 1e-4, difference
        print(f"{name}: logits of the merged file differ by {difference:.2g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", nargs="+", metavar="NAME FOLDER [MERGED]")
    arguments = parser.parse_args()
    if arguments.check:
        check(*arguments.check[:2], arguments.check[2] if len(arguments.check) > 2 else None)
    else:
        for kind, seed in ("", 2021), ("-dora", 2024):
            generator = torch.Generator().manual_seed(seed)
            for name in TARGETS:
                write(name + kind, generator)
