/* Where this program is, and the files that belong to it. */
#ifndef CT_BASE_PROCESS_PROGRAM_H
#define CT_BASE_PROCESS_PROGRAM_H

/* Returns the directory of the program, or NULL if /proc cannot be read or memory is exhausted. The result is owned. */
char *ct_program_dir(void);
/* Returns the path of a file that is installed with the program, such as "configs/smoke.yaml" in PREFIX/share/ctrain;
 * for a program in a build directory, that of the source tree. Returns NULL if there is no such file. The result is
 * owned. */
char *ct_program_file(const char *name);

#endif
