"""PyTorch's eager mode on the CPU, on the common work: `step.py MODEL STEPS < WORK`, WORK being what the program `work` prints.

Prints a line of JSON as the other programs do. Bytes are those of `benches/results/pytorch_memory.json`: a process on a CPU
does not tell tensors from everything else.
"""

import time

START = time.perf_counter()

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

WARM_UP = 2
RESULTS = Path(__file__).resolve().parents[2] / "results/pytorch_memory.json"


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.fc = nn.Linear(32 * 14 * 14, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x.view(-1, 1, 28, 28)))))
        return self.fc(x.flatten(1))


def main():
    name, steps = sys.argv[1], int(sys.argv[2])
    work = json.load(sys.stdin)
    model = {"mlp": Mlp, "cnn": Cnn}[name]()
    state = {key: torch.tensor(work["weights"][key]).view(value.shape) for key, value in model.state_dict().items()}
    if set(state) != set(work["weights"]):
        sys.exit(f"{name}: weights {sorted(work['weights'])}, expected {sorted(state)}")
    model.load_state_dict(state)
    x, y = torch.tensor(work["x"]).view(-1, 784), torch.tensor(work["y"])
    optimizer = torch.optim.Adam(model.parameters(), lr=work["rate"])

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step()]
    first_step_s = time.perf_counter() - START
    losses += [step() for _ in range(WARM_UP)]
    timed, cpu = time.perf_counter(), time.process_time()
    losses += [step() for _ in range(steps)]
    outcome = {
        "library": "PyTorch",
        "version": torch.__version__.split("+")[0],
        "adapter": f"CPU, {torch.get_num_threads()} threads",
        "model": name,
        "first_step_s": first_step_s,
        "ms_per_step": 1e3 * (time.perf_counter() - timed) / steps,
        "cpu_ms_per_step": 1e3 * (time.process_time() - cpu) / steps,
        "device_bytes": next(row["peak_bytes"] for row in json.loads(RESULTS.read_text())["networks"] if row["network"] == name),
        "losses": losses,
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
