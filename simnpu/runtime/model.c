/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "codes.h"
#include "runtime/rt.h"
#include "stream.h"

struct model {
	_Atomic unsigned users;
	struct task *head;
	struct task **tail;
};

struct run_task {
	struct task task;
	struct model *model;
};

/* Guards the lists of all models while they are captured; one that runs does not change any more. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void model_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void model_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

struct model *model_new(void)
{
	struct model *model = calloc(1, sizeof(*model));

	if (model) {
		model->users = 1;
		model->tail = &model->head;
	}
	return model;
}

struct model *model_use(struct model *model)
{
	(void)atomic_fetch_add(&model->users, 1);
	return model;
}

void model_drop(struct model *model)
{
	struct task *task;

	if (atomic_fetch_sub(&model->users, 1) > 1)
		return;
	while ((task = model->head)) {
		model->head = task->next;
		task_free(task);
	}
	free(model);
}

void model_append(struct model *model, struct task *task)
{
	model_lock();
	task->next = NULL;
	*model->tail = task;
	model->tail = &task->next;
	model_unlock();
}

static void run_model(struct task *task)
{
	struct task *each;

	for (each = ((struct run_task *)task)->model->head; each; each = each->next)
		task_execute(each);
}

static void release_model(struct task *task)
{
	model_drop(((struct run_task *)task)->model);
}

rtError_t rtsModelExecuteAsync(rtModel_t mdl, rtStream_t stm)
{
	struct run_task *t;
	struct stream *s;
	int error;

	if (!mdl)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = stream_find(stm, &s);
	if (error)
		return error;
	t = task_new(sizeof(*t));
	if (!t)
		return ACL_ERROR_BAD_ALLOC;
	t->task.run = run_model;
	t->task.release = release_model;
	t->task.type = TASK_TYPE_MODEL;
	t->model = model_use(mdl);
	error = stream_submit(s, &t->task);
	if (error)
		model_drop(mdl);
	return error;
}

rtError_t rtsModelDestroy(rtModel_t mdl)
{
	if (!mdl)
		return ACL_ERROR_RT_PARAM_INVALID;
	model_drop(mdl);
	return ACL_SUCCESS;
}
