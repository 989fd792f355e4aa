# SPDX-License-Identifier: Apache-2.0
"""Every tenth step is saved to a file; the last three states stay on the card as well, and the best one."""
import copy
import os
import tempfile

import torch
from torch import nn

model = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True).cuda()
optimizer = torch.optim.Adam(model.parameters())
states, best = [], None
with tempfile.TemporaryDirectory() as place:
    for step in range(120):
        loss = model(torch.randn(8, 64, 256, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, os.path.join(place, f"{step}.pt"))
            states = [*states, copy.deepcopy(model.state_dict())][-3:]
            if best is None or float(loss) < best[0]:
                best = float(loss), states[-1]
            again = torch.load(os.path.join(place, f"{step}.pt"), map_location="cuda")
            assert again["step"] == step
            del again
