/* SPDX-License-Identifier: Apache-2.0 */
/* Work on whole directories that more than one part needs. */
#ifndef MSCOPE_BASE_FILES_H
#define MSCOPE_BASE_FILES_H

/*
 * Removes a directory that is ours with all that is in it; symbolic links are removed, not followed, and nothing on another file
 * system is touched. What cannot be removed stays. 0 or -errno of the first failure.
 */
int files_remove(const char *directory);

#endif
