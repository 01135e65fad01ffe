/* Defines an enumeration and the names of its values in one list:
 *
 *   #define CT_FRUITS(X) X(CT_APPLE, "apple") X(CT_PEAR, "pear")
 *   enum ct_fruit { CT_FRUITS(CT_CHOICE_ID) };
 *   static const char *const names[] = {CT_FRUITS(CT_CHOICE_NAME) NULL};
 *
 *   enum { CT_N_FRUITS = CT_CHOICE_COUNT(CT_FRUITS) };
 *
 * The first value is 0. An array of names must end with NULL. */
#ifndef CT_BASE_CHOICE_H
#define CT_BASE_CHOICE_H

#include <stddef.h>
#include <string.h>

#define CT_CHOICE_ID(id, name) id,
#define CT_CHOICE_NAME(id, name) name,
#define CT_CHOICE_ONE(id, name) +1
#define CT_CHOICE_COUNT(list) (0 list(CT_CHOICE_ONE))

/* Returns the value with this name, or -1 if there is none. */
static inline int ct_choice_find(const char *const *names, const char *name)
{
	for (int i = 0; names[i]; i++) {
		if (strcmp(names[i], name) == 0)
			return i;
	}
	return -1;
}

/* Returns the name of a value, or "" if the value is not in the list. */
static inline const char *ct_choice_name(const char *const *names, int value)
{
	for (int i = 0; names[i]; i++) {
		if (i == value)
			return names[i];
	}
	return "";
}

#endif
