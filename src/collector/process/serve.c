/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of another process; see trace/control.h. */
#include <errno.h>
#include <string.h>

#include "collector/api.h"
#include "collector/loader/lookup.h"
#include "collector/process/process.h"
#include "collector/python/who.h"
#include "collector/vendor.h"

static int open_session(const char *directory)
{
	uint32_t recording = mscope_recording();

	if (recording == RECORDING_ON || recording == RECORDING_SHADOW)
		return -EALREADY;
	if (recording != RECORDING_OFF || session_is_disabled() || lookup_is_passive_quiet())
		return -EPERM;
	return directory[0] == '/' ? session_join(directory, 0) : -EINVAL;
}

static int take_snapshot(void)
{
	uint64_t device = vendor_current_device(), figures[6];

	memset(figures, 0xff, sizeof(figures));
	if (device == DEVICE_KEY_NONE)
		device = device_key(VENDOR_CPU, DEVICE_HOST);
	return snapshot_take(device, true, "ctl", figures);
}

static int ask_who(uint32_t number)
{
	return mscope_recording() == RECORDING_ON ? python_ask_who(number) : -ENOENT;
}

static int carry_out(enum control_kind kind, const char *session, uint32_t number)
{
	uint32_t recording;

	switch (kind) {
	case CONTROL_NOTHING:
		recording = mscope_recording();
		return recording == RECORDING_ON || recording == RECORDING_SHADOW;
	case CONTROL_OPEN:
		return open_session(session);
	case CONTROL_START:
		return mscope_start(NULL, 0);
	case CONTROL_STOP:
		return mscope_stop();
	case CONTROL_STEP:
		return (int)mscope_step();
	case CONTROL_SNAPSHOT:
		return take_snapshot();
	case CONTROL_WHO:
		return ask_who(number);
	}
	return -EINVAL;
}

MSCOPE_COLD void collector_serve_slow(void)
{
	/* The command that was begun last: who asks sets the bit again until it is done, and events of the command itself find it. */
	static _Atomic uint32_t begun;
	struct control_block *block = lookup_own_block();
	uint32_t seen = atomic_load(&collector_switch.generation), number;
	int saved_errno = errno;

	/* One thread does it; a child of fork() finds its own page wiped. */
	if ((seen & CONTROL_ASKED) == 0 ||
	    !atomic_compare_exchange_strong(&collector_switch.generation, &seen,
					    collector.generation))
		return;
	number = atomic_load(&block->asked);
	if (number != atomic_load(&block->done) && atomic_exchange(&begun, number) != number) {
		atomic_store(&block->result, carry_out((enum control_kind)atomic_load(&block->kind),
						       block->session, number));
		atomic_store(&block->done, number);
	}
	errno = saved_errno;
}
