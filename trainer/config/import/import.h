/* Translates launch lines of other programs (torchrun, python -m torch.distributed.launch, accelerate launch, python
 * main.py of the ImageNet example, srun, mpirun) to ctrain's command line. */
#ifndef CT_TRAINER_CONFIG_IMPORT_IMPORT_H
#define CT_TRAINER_CONFIG_IMPORT_IMPORT_H

#include "base/mem.h"

/* Appends the command that replaces `line`, and below it comment lines with what was ignored or has to be completed.
 * Words such as $SLURM_NNODES are kept for the shell. Fails with CT_USAGE if it is not one launch line. */
enum ct_status ct_import_line(const char *line, struct ct_str *out) CT_MUST_CHECK;
/* Does the same for a configuration file of accelerate (default_config.yaml). Fails with CT_CONFIG if it is none. */
enum ct_status ct_import_accelerate(const char *path, struct ct_str *out) CT_MUST_CHECK;

#endif
