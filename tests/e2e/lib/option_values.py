# SPDX-License-Identifier: Apache-2.0
"""Values that options must refuse, on the command line and in config()."""
import os

LONG = "a" * 5000
ENDLESS = "9" * 30
BAD_UTF8 = os.fsdecode(b"a\xff\xfe")

# What is wrong with the value: how the message names it. Too long, not UTF-8 and empty are tried with every option.
WRONG = {
    "output-path": ["@x", "=x", "-x", "+x", "a\x1bb", "/" + "n" * 256, "/n" * 33, "n" * 4097],
    "trace-dir": ["@x", "/n" * 33],
    "format": ["xml", "CSV", "csv,db", "0"],
    "summary-json": ["@x", "/n" * 33],
    "on-forecast": [" "],
    "fail-on": ["leaks", "peak", "peak:0", "oom-in:0steps", "oom-in:5", "peak:1GB", "growth:1M", "growth:1M/s", f"peak:{ENDLESS}"],
    "store": [" "],
    "to": [" "],
    "store-every": ["0", "-1", "86401", "soon", "30s", ENDLESS],
    "run": [" "],
    "job": [" "],
    "commit": [" "],
    "tag": [" "],
    "store-wait": ["-1", "86401", "soon", ENDLESS],
    "place": [" "],
    "pool": [" "],
    "budget": ["@x", "/n" * 33],
    "mark": [" ", "   "],
    "start-index": ["-1", "4294967293", "one", ENDLESS],
    "whatif": ["yes", "on", "auto,off", "0"],
    "set": [],
    "limit": ["x", "0", "1023K", "1.5G", ENDLESS],
    "bandwidth": ["x", "0", "1023K", "1.5G", "-1G", ENDLESS],
    "card": ["x", "0", "1023K", "-1G", ENDLESS],
    "torch": [" "],
    "batch": ["0", "-1", "many", "1,x", "1000001", ENDLESS],
    "batch-of": ["0", "four", "4;8", "1000001", ENDLESS],
    "top": ["0", "-1", "many", "1,2", ENDLESS],
    "sort": ["size", "bytes,step"],
    "max-disk": ["x", "0", "1023K", "0%", "101%", "1.5G", "-1G", ENDLESS],
    "duration": ["0", "-1", "31536001", "soon", "30s", ENDLESS],
    "max-trace": ["x", "0", "1023K", "0%", "101%", "1.5G", "-1G", ENDLESS],
    "min-free": ["x", "0", "1023K", "0%", "101%", "1.5G", "-1G", ENDLESS],
    "max-size": ["x", "0", "399999", "0%", "101%", "1.5M", "2G", "-1M", ENDLESS],
    "device": ["rocm", "gpu:32", "cuda:x", "npu:32", "npu:-1", "npu:01", "npu:x", "cpu:0", "2", "npu 2", "npu:1,tpu", f"npu:{ENDLESS}"],
    "steps": ["0", "-1", "+1", "01", "1.5", "one", "1,x", "1;2", "1 2", "4294967296", "0x10", ENDLESS],
    "batch": ["0", "-1", "01", "1.5", "x", "1,x", "1000001", ENDLESS],
    "batch-of": ["0", "-1", "01", "1.5", "x", "1,x", "1000001", ENDLESS],
    "call-stack": ["rust", "c:1001", "c:-1", "c:00", "c:", "c:x", "python:1001", "c:20:20", f"python:{ENDLESS}"],
    "events": ["malloc", "alloc:1", "alloc,what", "all"],
    "level": ["2", "ops", "0,2", "op:1"],
    "collect-mode": ["now", "immediate,deferred", "0"],
    "auto-steps": ["1", "on,off", "yes"],
    "inefficient": ["early", "mem_size:", "mem_size:1M", "mem_size:4294967296", "idle_threshold:0", "early_allocation:1"],
    "analysis": ["leak", "oomfoo", "oom:0", "oom:1001", "oom:", "leaks:1", "leaks,peaks", f"oom:{ENDLESS}"],
    "watch": ["full-content", ",", "op0,", "op0:,op1", "op0:outid,op1", "op0:out,op1", ":0,op1", "op0:01,op1", "op1:0",
              "op0,op1,full", "a,b,c,full-content", "op0:4294967296,op1", "o" * 255, "s" * 255 + ",e"],
    "input-path": [",", "a,b,c", "a,@x", "=x,b", "a,b\x1bc", "a,/" + "n" * 256, "/n" * 33 + ",b", "a," + "n" * 4097],
    "port": ["-1", "65536", "http", ENDLESS],
    "prometheus": ["-1", "65536", "/metrics", ENDLESS],
    "log-level": ["loud", "2", "warn,error"],
}
OLD_NAMES = {"output": "output-path", "input": "input-path", "data-format": "format", "mstx-info": "mark"}
