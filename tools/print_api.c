/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints src/collector/api.def as a module of the Python package: numbers by their names, and for each function how it is called
 * and with which types of ctypes. The build runs it; the compiler has looked up every number.
 *
 * The module imports nothing: it is in the way of every Python process of a launch.
 */
#include <stdio.h>

#include "base/compiler.h"
#include "base/vendors.h"
#include "collector/api.h"
#include "trace/context.h"
#include "trace/session.h"

struct number {
	const char *name;
	int value;
};

static const struct number numbers[] = {
#define NUMBER(name) {#name, name},
#include "collector/api.def"
};

static const struct number wants[] = {
#define WANT(name, bit, meaning) {"WANTS_" #name, bit},
#include "collector/api.def"
};

#define PARAMETERS_MAX 10

struct function {
	const char *name;
	const char *how;
	const char *result;			/* NULL: none */
	const char *parameters[PARAMETERS_MAX]; /* as many as are not NULL */
};

#define API_TYPE(c_type, name, python_type) #python_type
#define NOTHING				    NULL
#define TYPES_QUICK(...)		    __VA_ARGS__
#define TYPES_WAITS(...)		    __VA_ARGS__
#define TYPES_UNTYPED(...)		    NULL

static const struct function functions[] = {
#define API(name, result, parameters, how, meaning) {#name, #how, result, {TYPES_##how parameters}},
#include "collector/api.def"
};

static void print_type(const char *type)
{
	if (type == NULL)
		printf("None");
	else
		printf("\"%s\"", type);
}

int main(void)
{
	size_t i, k;

	printf("# SPDX-License-Identifier: Apache-2.0\n"
	       "\"\"\"What the package shares with the collector; written from src/collector/api.def by the build.\"\"\"\n\n");
	for (i = 0; i < MSCOPE_COUNT(numbers); i++)
		printf("%s = %d\n", numbers[i].name, numbers[i].value);
	printf("\n");
	for (i = 0; i < MSCOPE_COUNT(wants); i++)
		printf("%s = %d\n", wants[i].name, wants[i].value);
	printf("\n# How it is called, type of the result, types of the parameters.\nFUNCTIONS = {\n");
	for (i = 0; i < MSCOPE_COUNT(functions); i++) {
		printf("    \"%s\": (\"%s\", ", functions[i].name, functions[i].how);
		print_type(functions[i].result);
		for (k = 0; k < PARAMETERS_MAX && functions[i].parameters[k] != NULL; k++) {
			printf(", ");
			print_type(functions[i].parameters[k]);
		}
		printf("),\n");
	}
	printf("}\n");
	return ferror(stdout) || fclose(stdout) != 0;
}
