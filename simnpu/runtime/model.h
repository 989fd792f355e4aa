/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models: tasks that were captured instead of run, to be run together as often as wanted. While a stream is captured, what is put
 * on it goes to the model, and a stream that waits for an event of a captured stream is captured too. The order in which tasks
 * came is an order in which they may run, as each depends only on earlier ones; so a model runs them one after the other.
 */
#ifndef SIMNPU_RUNTIME_MODEL_H
#define SIMNPU_RUNTIME_MODEL_H

#include <stdbool.h>

struct model;
struct stream;
struct task;

/* An empty one with one user. NULL when memory is short. */
struct model *model_new(void);
struct model *model_use(struct model *model);
void model_drop(struct model *model);

/* Puts a task at its end and takes it over. */
void model_append(struct model *model, struct task *task);

/* Keep models still over a fork. */
void model_lock(void);
void model_unlock(void);

#endif
