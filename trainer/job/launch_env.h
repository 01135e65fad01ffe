/* Environment variables that pass values from the launcher to its workers, in addition to the rank's identity (RANK,
 * WORLD_SIZE, ...). */
#ifndef CT_TRAINER_JOB_LAUNCH_ENV_H
#define CT_TRAINER_JOB_LAUNCH_ENV_H

#define CT_ENV_PAGES_FD "CTRAIN_PAGES_FD"         /* inherited descriptor for ct_rank_page_join */
#define CT_ENV_JOB_START_NS "CTRAIN_JOB_START_NS" /* start of the job, on the ct_now_ns clock */
#define CT_ENV_START_NS "CTRAIN_START_NS" /* start of the job, or of its latest attempt, on the ct_now_ns clock */

/* After a restart only. The number of restarts is in CTRAIN_RESTART, which is part of the rank's identity. */
#define CT_ENV_SAVES_BEFORE "CTRAIN_SAVES_BEFORE" /* ct_checkpoint_newest_save at the start of the job */
#define CT_ENV_RESTART_LINE "CTRAIN_RESTART_LINE" /* JSON: fields of the `restart` line of metrics.jsonl */

#endif
