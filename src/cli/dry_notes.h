/* SPDX-License-Identifier: Apache-2.0 */
/* How notes of a dry run's trace start: python/msmemscope/_dry.py writes them, `msmemscope dryrun` reads them, and people read them too. */
#ifndef MSCOPE_CLI_DRY_NOTES_H
#define MSCOPE_CLI_DRY_NOTES_H

#define DRY_NOTE_DIED "dry run: died at " /* train.py:31 optimizer.step() */
#define DRY_NOTE_BECAUSE                                                                           \
	"dry run: because of " /* RuntimeError: the first line, or the one of the simulated NPU */
#define DRY_NOTE_VALUE "dry run: value: "   /* train.py:52 loss.item() read as 0 */
#define DRY_NOTE_STUCK "dry run: ended at " /* train.py:52 loss.item(): why */
#define DRY_NOTE_MISSING                                                                           \
	"dry run: missing: " /* train.py:31 model(x): cudnnRNNForward is not simulated */
#define DRY_NOTE_OUTSIDE  "dry run: outside of the pool: "     /* bytes */
#define DRY_NOTE_WAITS	  "dry run: waits for other streams: " /* bytes */
#define DRY_NOTE_NUMBERS  "dry run: numbers"		       /* one of them is an integer */
#define DRY_NOTE_STEERS	  "dry run: conditions"	  /* one of them is another number or a truth */
#define DRY_NOTE_BACKWARD "dry run: backward: "	  /* train.py:30 main */
#define DRY_NOTE_RANGE	  "dry run: workspaces: " /* bytes */
#define DRY_FULL	  " taken as full" /* in a value: its tensors are larger than they are */

#endif
