# SPDX-License-Identifier: Apache-2.0
"""A stand-in NVML (tests/fakes) that notes when it was asked, so that a program can wait until its memory was seen.

    nvml.asked(out, targets)    the variables of such a program
    nvml.SCRIPT                 what a script begins with: settle(), and report(address, bytes, allocated, reserved, Device(1, 0))
"""
import subprocess

# The stand-in's NVML, which notes in a file that it was asked.
NVML = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
static void *next(const char *name)
{
	static void *library;
	if (library == NULL)
		library = dlopen(getenv("FAKE_NVML"), RTLD_NOW | RTLD_LOCAL);
	return dlsym(library, name);
}
#define CALL(name, parameters, ...) int name parameters { int (*f)() = next(#name); return f(__VA_ARGS__); }
CALL(nvmlInit_v2, (void))
CALL(nvmlDeviceGetCount_v2, (unsigned *count), count)
CALL(nvmlDeviceGetHandleByIndex_v2, (unsigned index, void **out), index, out)
CALL(nvmlDeviceGetName, (void *device, char *out, unsigned bytes), device, out, bytes)
CALL(nvmlDeviceGetUUID, (void *device, char *out, unsigned bytes), device, out, bytes)
CALL(nvmlDeviceGetMigMode, (void *device, unsigned *now, unsigned *later), device, now, later)
CALL(nvmlDeviceGetMaxMigDeviceCount, (void *device, unsigned *out), device, out)
CALL(nvmlDeviceGetMigDeviceHandleByIndex, (void *device, unsigned index, void **out), device, index, out)
CALL(nvmlDeviceGetMemoryInfo, (void *device, void *out), device, out)
/* With NVML_RESTLESS another process of 700 MiB comes or goes while a list is made, in each third: after the device's own figure. */
static unsigned lists, there;
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *out)
{
	struct { unsigned pid; unsigned long long used; unsigned a, b; } *one = out;
	int (*f)() = next("nvmlDeviceGetComputeRunningProcesses_v3"), r;
	if (getenv("NVML_RESTLESS") != NULL && lists++ % 3 == 0)
		there = !there;
	r = f(device, count, out);
	if (there)
		one[*count].pid = 1, one[(*count)++].used = 700ull << 20;
	return r;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, void *out)
{
	int (*f)() = next("nvmlDeviceGetMemoryInfo_v2");
	int r = f(device, out), fd = open(getenv("NVML_ASKED"), O_WRONLY | O_CREAT | O_APPEND, 0600);
	(void)!write(fd, "", 1);
	close(fd);
	if (there)
		((unsigned long long *)out)[4] += 700ull << 20; /* used */
	return r;
}
"""
SCRIPT = r"""
import ctypes, json, os, sys, time
import msmemscope
MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
ctypes.CDLL("libc10.so", ctypes.RTLD_GLOBAL)
report = ctypes.CDLL(None)._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int8), ("index", ctypes.c_int8)]
report.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, Device]

def asked():
    return os.path.getsize(os.environ["NVML_ASKED"]) if os.path.exists(os.environ["NVML_ASKED"]) else 0

def settle():
    "Until the driver was asked twice, and the engine has read the answers."
    for _ in range(2):
        begin, end = asked(), time.monotonic() + 60
        while asked() < begin + 5 and time.monotonic() < end:
            time.sleep(0.01)
        msmemscope.take_snapshot(0)

"""


def build(path, text, *words):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-w", "-o", path, "-x", "c", "-", *words], input=text, text=True, check=True)
    return path


def asked(out, targets):
    """Variables of a program that sees when NVML was asked; it finds the pool of tests/targets, too."""
    build(out / "nvml" / "libnvidia-ml.so.1", NVML)
    return {"LD_LIBRARY_PATH": f"{out}/nvml:{targets.parent}/fakes:{targets}", "FAKE_NVML": targets.parent / "fakes" / "libnvidia-ml.so.1",
            "NVML_ASKED": out / "asked", "TRUTH": out / "truth"}
