/* The memory of this process. */
#ifndef CT_TRAINER_RUN_METRICS_MEMORY_USE_H
#define CT_TRAINER_RUN_METRICS_MEMORY_USE_H

#include <stdint.h>

/* Returns the resident size of this process in bytes, without memory of a GPU; 0 if it is not known. */
uint64_t ct_memory_use(void);

#endif
