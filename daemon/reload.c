/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "daemon/reload.h"

#include "daemon/log.h"

static void say(void *arg, const char *key, bool applied)
{
	int *count = arg;

	if (applied) {
		log_msg(LOG_NOTICE, NULL, "reload: %s is taken over", key);
		(*count)++;
	} else {
		log_msg(LOG_WARNING, NULL,
			"reload: %s has changed, but needs a restart; the old value stands", key);
	}
}

int reload_config(struct config *c, const char *path)
{
	struct config *fresh;
	char error[512];
	int count = 0;
	int r;

	r = config_load(&fresh, path, error, sizeof(error));
	if (r < 0) {
		log_msg(LOG_ERR, NULL, "reload refused, nothing has changed: %s", error);
		return r;
	}
	config_apply(c, fresh, say, &count);
	config_free(fresh);
	log_set_level(c->log_level);
	log_event(LOG_NOTICE, LOG_ID_RELOADED, NULL, NULL,
		  "configuration read again: %d keys changed", count);
	return count;
}
