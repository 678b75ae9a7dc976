// What this library was built from; the loader refuses one that does not fit the package.

#include "vec.h"

EXPORT const char *const pagemill_sources;
const char *const pagemill_sources = SOURCES_DIGEST;
