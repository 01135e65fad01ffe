/* The part of a session that joins the other ranks, opens the device and the communicators, and checks that all ranks
 * do the same work. For session.c only. */
#ifndef CT_TRAINER_RUN_SESSION_SESSION_WORLD_IMPL_H
#define CT_TRAINER_RUN_SESSION_SESSION_WORLD_IMPL_H

#include "trainer/run/session/session.h"

/* Opens everything that does not need the data, which another thread opens at the same time. If id is NULL, the session
 * has a single rank. */
enum ct_status ct__session_open_world(struct ct_session *s, const struct ct_identity *id) CT_MUST_CHECK;
/* Collective. Checks that all ranks have the same engine, model and data. */
enum ct_status ct__session_agree_on_work(struct ct_session *s) CT_MUST_CHECK;
/* Collective. Fails with CT_IO on ranks that do not see the run directory of rank 0. Does nothing on one host. */
enum ct_status ct__session_check_run_dir(struct ct_session *s) CT_MUST_CHECK;

#endif
