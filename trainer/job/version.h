/* The version of the program. */
#ifndef CT_TRAINER_JOB_VERSION_H
#define CT_TRAINER_JOB_VERSION_H

/* Returns the version with the commit, such as "0.1.0+g1a2b3c4d5", or "0.1.0" for a release or sources without git.
 * CTRAIN_VERSION, which ranks compare and files contain, has no commit. */
const char *ct_version(void);
/* Returns the commit, such as "1a2b3c4d5", or "" for a release or sources without git. */
const char *ct_version_commit(void);

#endif
