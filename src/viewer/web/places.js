// SPDX-License-Identifier: Apache-2.0
// Names of call sites, as findings have them: "train.py:9 main -> net.py:41 forward -> torch.relu".

export const placeName = text => text.replaceAll(" -> ", " \u2192 ");

// The call site of a group, whose name may end with its owner: "train.py:9 main  (weights)".
export const siteOf = name => name?.split("  (")[0];
