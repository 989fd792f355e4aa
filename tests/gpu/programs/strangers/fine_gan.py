# SPDX-License-Identifier: Apache-2.0
"""Two networks and two optimizers, the generator trained every fifth time; a pool of 50 old pictures."""
import random

import torch
from torch import nn

random.seed(3)
maker = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1024), nn.Tanh()).cuda()
judge = nn.Sequential(nn.Linear(1024, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)).cuda()
make_steps, judge_steps = (torch.optim.Adam(one.parameters(), betas=(0.5, 0.99)) for one in (maker, judge))
old, scores = [], []
for step in range(100):
    false = maker(torch.randn(64, 32, device="cuda"))
    kept = false.detach()[:4].clone()
    if len(old) < 50:
        old.append(kept)
    else:
        old[random.randrange(50)] = kept
    loss = judge(torch.randn(64, 1024, device="cuda")).relu().mean() + judge(torch.cat([false.detach(), random.choice(old)])).relu().mean()
    judge_steps.zero_grad()
    loss.backward()
    judge_steps.step()
    scores.append(loss.item())
    if step % 5 == 0:
        make_steps.zero_grad()
        (-judge(maker(torch.randn(64, 32, device="cuda"))).mean()).backward()
        make_steps.step()
