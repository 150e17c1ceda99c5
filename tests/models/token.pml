/* SPDX-License-Identifier: LGPL-2.1-or-later
 *
 * A file's state with tokens and bypass: client/preload/takeover.c (takeover, bypass_with_token,
 * retry_locked, takeover_token_unused), token.c (token_take, mark_look, mark_harmless), call.c (run_token),
 * daemon/domain/registry.c (take_on, registry_token_claim), watch.c (token_retry, leave), token.c,
 * decide.c (resume_file, forget_unknown), pool/fence.c (file_leave_bypass_locked), file.c (file_sync).
 *
 * Modelled: one file. A session that writes it through its entry: a record in state lane, none in bypass.
 * A stranger, a process whose attach failed, that writes it under a token, may close it, or may register
 * later (takeover_retry) with one of its calls still under way. A daemon that registers the file, takes it
 * out of bypass, destages, and may be killed once at any step and come again.
 * Left out: forks, several domains, the way into bypass through a full lane , syncs
 * that fail.
 *
 * Properties: no write without a record while an older record of the file can be replayed over it; never
 * one side in the belief that no entry says lane while it says so; an fsync that skips the disk skips it
 * only where every byte written has a record or is durable.
 *
 * Check: safety
 * Rule: NO_TOKEN safety a program without a session takes the token before it looks at the mark
 * Rule: NO_MARK_LOOK safety and looks at the mark
 * Rule: TOKEN_NOT_TRIED safety the daemon tries the token after it has stamped the mark
 * Rule: TOKEN_FIRST safety after, not before
 * Rule: TOKEN_NOT_KEPT safety and keeps it until the entry is published
 * Rule: TOKEN_IN_USE safety a token is let go of only when no call uses it any more
 * Rule: NO_SYNC_AGAIN safety with the token held, and before the entry is published, the file is synced
 * Rule: NO_NEEDS_SYNC safety who takes a file out of bypass raises needs_sync first
 */
#define NONE   0
#define LANE   1
#define BYPASS 2

bool mark; /* user.pmemlogd.owner */
byte entry; /* state in the control file */
byte token; /* shared flocks */
bool token_held; /* exclusively, by the daemon */
bool file_lock;
bool live; /* a record that would be replayed */
bool dirty; /* bytes in the page cache that neither disk nor lane has */
bool needs_sync;
bool stranger_writes; /* under its token */
bool wanted; /* the session wants the file registered */
bool kill_daemon;

inline write_without_record()
{
	atomic {
		assert(!live);
		assert(entry != LANE);
		dirty = true
	}
}

active proctype session()
{
	byte rounds;

	wanted = true;
	entry != NONE;
	do
	:: rounds < 2 ->
		rounds++;
		/* under the file's lock: RULE L, or write_plain */
		if
		:: atomic { !file_lock && entry == LANE -> live = true }
		:: atomic { !file_lock && entry == BYPASS -> assert(!live); dirty = true; needs_sync = true }
		:: atomic {
			/* file_sync: nothing_to_sync, or a real one */
			if
			:: entry == LANE && !needs_sync -> assert(!dirty)
			:: else -> dirty = false; needs_sync = (entry == NONE -> needs_sync : false)
			fi
		   }
		:: entry == NONE
		fi
	:: break
	od
}

active proctype stranger()
{
	bool has_token, has_session;
	byte times;

	if
	:: has_session = true
	:: true
	fi;

opens:	times++;
	/* token_take */
#ifndef NO_TOKEN
	atomic { !token_held -> token++; has_token = true }
#endif
	/* mark_look: its entry if there is one; the mark of a lane that it has a session of is harmless
	 * (a daemon died before the entry); else EIO */
#ifndef NO_MARK_LOOK
	if
	:: mark ->
		if
		:: entry != NONE || !has_session -> goto closed
		:: else
		fi
	:: else
	fi;
#endif
	stranger_writes = true;
	write_without_record();
	if
	:: goto closed
	:: true
	fi;
	/* retry_locked while a call is under way: registers, and adopts the entry */
	wanted = true;
	if
	:: entry != NONE
	:: goto last
	fi;
#ifdef TOKEN_IN_USE
	atomic { has_token -> token--; has_token = false }
#endif
last:	write_without_record(); /* the call that was under way */
closed:	atomic {
		stranger_writes = false;
		token = token - has_token; has_token = false
	}
	/* opens it again, as an entry, and syncs */
	if
	:: atomic { entry == LANE && !needs_sync -> assert(!dirty) }
	:: else
	fi;
	if
	:: times < 2 -> goto opens
	:: true
	fi
}

/* registry_token_claim; ok: it is ours */
inline claim()
{
	atomic {
#ifdef TOKEN_NOT_TRIED
		ok = true
#else
		if
		:: token == 0 -> token_held = true; ok = true
		:: else -> ok = false
		fi
#endif
	}
}

active proctype daemon()
{
	bool ok, token_wait;
	byte rounds;

again:	{
		/* resume: a mark without an entry goes, an entry without a catalog entry, too */
		ok = false;
		if
		:: entry == NONE -> mark = false
		:: entry == BYPASS && !mark -> entry = NONE
		:: entry == BYPASS && mark -> token_wait = true
		:: entry == LANE
		fi;
		do
		:: wanted && entry == NONE ->
			/* take_on */
#ifdef TOKEN_FIRST
			claim();
			token_held = false;
			mark = true;
#else
			mark = true;
#endif
			dirty = false; /* register_stamp */
#ifndef TOKEN_FIRST
			claim();
#endif
#ifdef TOKEN_NOT_KEPT
			token_held = false;
#endif
			if
			:: ok ->
#ifndef NO_SYNC_AGAIN
				dirty = false;
#endif
				entry = LANE;
				token_held = false
			:: else ->
				mark = false;
				token_wait = true;
				entry = BYPASS
			fi
		:: rounds < 2 && entry == BYPASS && token_wait ->
			/* token_retry */
			rounds++;
			atomic { ok = (token == 0 && !token_held) }
			if
			:: ok ->
				mark = true;
				claim();
				token_held = false;
				if
				:: ok ->
					/* leave, under the file's lock */
					atomic { !file_lock -> file_lock = true }
					if
					:: entry == BYPASS && !live ->
#ifndef NO_NEEDS_SYNC
						needs_sync = true;
#endif
						entry = LANE
					:: else
					fi;
					file_lock = false;
					token_wait = false
				:: else -> mark = false
				fi
			:: else
			fi
		:: live -> atomic { dirty = false; live = false } /* destage */
		:: timeout -> break
		od
	} unless {
		atomic {
			kill_daemon ->
			kill_daemon = false; token_held = false; file_lock = false; token_wait = false;
			goto again
		}
	}
}

active proctype killer()
{
	if
	:: kill_daemon = true
	:: skip
	fi
}
