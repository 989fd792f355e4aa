// SPDX-License-Identifier: Apache-2.0
// A static library of places.cpp: its code is the user's own.
#include "places.h"

void Arena::keep(size_t bytes)
{
	take(*this, bytes, LINE_OF(keep));
}
