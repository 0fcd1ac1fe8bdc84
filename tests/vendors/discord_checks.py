"""What the client libraries must find in the fake Discord server."""

from discord_scene import ANN, BOB, BOT, FORUM, GENERAL, GUILD, HIDDEN, PNG, ROLE, SEND, TOKEN, same

CHECKS = []


def check(function=None, **settings):
    def register(function):
        for name, value in settings.items():
            setattr(function, name, value)
        CHECKS.append(function)
        return function
    return register(function) if function else register


@check
async def the_guild_is_in_the_cache(s):
    seen = s.lib.cached(GUILD)
    same(seen["title"], "Guild", "name")
    same(seen["channels"], {"general": 0, "ideas": 15, "hidden": 0}, "channels")
    same(seen["members"], {BOT: None, ANN: "Annie", BOB: None}, "members")
    same(seen["roles"], {"@everyone", "Team", "desk"}, "roles")
    facts = await s.lib.facts(GUILD)
    same((facts["title"], facts["channels"]), ("Guild", {GENERAL, FORUM, HIDDEN}), "the same over REST")
    same(await s.lib.member(GUILD, ANN), {"user": ANN, "nick": "Annie", "roles": {ROLE, GUILD}}, "member")


@check
async def messages_go_both_ways(s):
    said = s.say("hello <@1100000000000000001> 🧊")
    got = await s.next("message")
    same((got["id"], got["text"]), (int(said["id"]), "hello <@1100000000000000001> 🧊"), "message")
    same((got["author"], got["nick"], got["guild"], got["channel"]), (ANN, "Annie", GUILD, GENERAL), "from")
    same(got["mentions"], [BOT], "mentions")
    sent = await s.lib.send(GENERAL, "answer")
    same((sent["author"], sent["text"]), (BOT, "answer"), "sent")
    own = await s.next("message")
    same((own["id"], own["author"]), (sent["id"], BOT), "its own message comes back")
    same([it["content"] for it in s.fake.channel(GENERAL)["messages"]][-1], "answer", "as users see it")


@check
async def direct_messages(s):
    s.fake.act("say", bot=BOT, by=ANN, text="psst")
    got = await s.next("message")
    same((got["text"], got["guild"], got["author"]), ("psst", None, ANN), "message")
    same(await s.lib.open_dm(ANN), got["channel"], "the same channel")
    sent = await s.lib.send(got["channel"], "what?")
    same(s.fake.channel(got["channel"])["messages"][-1]["id"], str(sent["id"]), "as the user sees it")
    s.fake.act("close_dm", user=ANN, closed=True)
    await s.refused(50007, s.lib.send(got["channel"], "again"), "Cannot send messages to this user")


@check
async def replies_and_mentions(s):
    said = s.say("first")
    sent = await s.lib.send(GENERAL, "second", reply_to=int(said["id"]))
    same((sent["type"], sent["reply_to"], sent["quoted"]), (19, int(said["id"]), "first"), "reply of the bot")
    same(sent["mentions"], [ANN], "a reply names its author")
    await s.next("message")
    await s.next("message")
    s.say("third", reply_to=sent["id"])
    got = await s.next("message")
    same((got["type"], got["reply_to"], got["quoted"], got["mentions"]), (19, sent["id"], "second", [BOT]), "reply to the bot")
    s.say("quiet", reply_to=sent["id"], no_ping=True)
    same((await s.next("message"))["mentions"], [], "a reply without a ping")
    s.say(f"<@&{ROLE}> <@{BOB}> <@999>")
    got = await s.next("message")
    same((got["roles"], got["mentions"]), ([ROLE], [BOB]), "those that exist")
    quiet = await s.lib.send(GENERAL, f"<@{ANN}> <@&{ROLE}>", no_mentions=True)
    same((quiet["mentions"], quiet["roles"]), ([], []), "mentions that are not allowed")
    await s.refused(50035, s.lib.send(GENERAL, "x", reply_to=1100000000000000999), "Unknown message")


@check
async def edits_and_deletes(s):
    said = int(s.say("one")["id"])
    s.fake.act("edit", channel=GENERAL, message=said, text="two")
    got = await s.next("raw_message_edit")
    same((got["id"], got["text"], got["edited"]), (said, "two", True), "edit of a user")
    s.fake.act("delete", channel=GENERAL, message=said)
    same((await s.next("raw_message_delete"))["id"], said, "delete of a user")
    sent = await s.lib.send(GENERAL, "three")
    edited = await s.lib.edit(GENERAL, sent["id"], "four")
    same((edited["text"], edited["edited"]), ("four", True), "edit of the bot")
    same((await s.next("raw_message_edit"))["text"], "four", "which comes back")
    await s.lib.delete(GENERAL, sent["id"])
    same((await s.next("raw_message_delete"))["id"], sent["id"], "delete of the bot")
    await s.refused(10008, s.lib.edit(GENERAL, sent["id"], "five"), "Unknown Message")
    other = int(s.say("hers")["id"])
    await s.refused(50005, s.lib.edit(GENERAL, other, "mine"), "Cannot edit a message authored by another user")
    await s.refused(50013, s.lib.delete(GENERAL, other), "Missing Permissions")


@check
async def reactions(s):
    said = int(s.say("like it?")["id"])
    s.fake.act("react", channel=GENERAL, message=said, by=ANN, emoji="🔥")
    got = await s.next("raw_reaction_add")
    same((got["id"], got["user"], got["emoji"]), (said, ANN, "🔥"), "of a user")
    await s.lib.react(GENERAL, said, "👀")
    await s.lib.react(GENERAL, said, "🔥")
    same((await s.lib.fetch(GENERAL, said))["reactions"], {"🔥": (2, True), "👀": (1, True)}, "reactions")
    await s.lib.unreact(GENERAL, said, "🔥")
    same((await s.next("raw_reaction_remove"))["emoji"], "🔥", "taken back")
    same(s.fake.channel(GENERAL)["messages"][-1]["reactions"],
         [{"emoji": "🔥", "users": [str(ANN)]}, {"emoji": "👀", "users": [str(BOT)]}], "as users see them")
    await s.refused(10014, s.lib.react(GENERAL, said, "no_emoji"), "Unknown Emoji")


@check
async def threads_on_messages_and_without(s):
    said = int(s.say("a long story")["id"])
    thread = await s.lib.thread_on(GENERAL, said, "Story")
    same((thread["id"], thread["parent"], thread["owner"], thread["type"]), (said, GENERAL, BOT, 11), "thread on a message")
    same((await s.next("thread_create"))["id"], said, "which is dispatched")
    await s.refused(160004, s.lib.thread_on(GENERAL, said, "Again"), "A thread has already been created")
    s.say("inside", channel=said)
    while (got := await s.next("message"))["text"] != "inside":
        pass
    same(got["channel"], said, "message in the thread")
    sent = await s.lib.send(said, "also inside")
    same(sent["channel"], said, "sent into the thread")
    renamed = await s.lib.rename(said, "Better")
    same(renamed["title"], "Better", "renamed")
    got = await s.next("raw_thread_update")
    same((got["title"], got["archived"]), ("Better", False), "which is dispatched")
    private = await s.lib.thread(GENERAL, "Private", private=True)
    public = await s.lib.thread(GENERAL, "Public")
    same((private["type"], public["type"]), (12, 11), "threads without a message")
    same({it["title"] for it in await s.lib.threads(GUILD)}, {"Better", "Private", "Public"}, "active threads")
    notice = [it for it in s.fake.channel(GENERAL)["messages"] if it["type"] == 18]
    same([it["content"] for it in notice], ["Public"], "notice in the channel")
    s.fake.act("change_channel", channel=said, archived=True)
    while not (await s.next("raw_thread_update"))["archived"]:
        pass
    s.fake.act("delete_thread", thread=public["id"])
    same((await s.next("raw_thread_delete"))["id"], public["id"], "deleted")


@check
async def threads_of_users(s):
    said = int(s.say("topic")["id"])
    s.fake.act("open_thread", channel=GENERAL, by=ANN, name="Hers", message=said)
    got = await s.next("thread_create")
    same((got["id"], got["owner"]), (said, ANN), "thread of a user")
    await s.lib.join_thread(said)
    hers = s.fake.act("open_thread", channel=GENERAL, by=ANN, name="Secret", private=True)
    await s.refused(50001, s.lib.send(int(hers["id"]), "peek"), "Missing Access")
    s.fake.act("join_thread", thread=int(hers["id"]), user=BOT)
    same((await s.lib.send(int(hers["id"]), "invited"))["text"], "invited", "after the invitation")


@check
async def forum_posts(s):
    thread, message = await s.lib.forum_post(FORUM, "Idea", "text of the idea")
    same((thread["parent"], message["id"], message["text"]), (FORUM, thread["id"], "text of the idea"), "post of the bot")
    hers = s.fake.act("post_in_forum", channel=FORUM, by=ANN, name="Bug", text="it breaks")
    while (got := await s.next("message"))["author"] != ANN:
        pass
    same((got["id"], got["channel"], got["text"]), (int(hers["id"]), int(hers["id"]), "it breaks"), "post of a user")
    same((await s.lib.send(int(hers["id"]), "fixed"))["channel"], int(hers["id"]), "answer")
    await s.refused(50008, s.lib.send(FORUM, "no"), "non-text channel")


@check
async def files_both_ways(s):
    s.say("see", files=[{"name": "a b.png", "mime": "image/png", "content_hex": PNG.hex()}, {"name": "n.txt", "content": "x"}],
          stickers=["wave"], embeds=[{"type": "rich", "title": "T"}])
    got = await s.next("message")
    same([(name, size) for name, size, _ in got["files"]], [("a_b.png", len(PNG)), ("n.txt", 1)], "files")
    same((got["stickers"], got["embeds"]), (["wave"], ["T"]), "sticker and embed")
    same(await s.lib.download(got["files"][0][2]), PNG, "content")
    sent = await s.lib.send(GENERAL, "mine", files=[("ü.png", PNG), ("2.bin", b"\x00--\r\n")], embed="E")
    same(([name for name, _, _ in sent["files"]], sent["embeds"]), (["ü.png", "2.bin"], ["E"]), "sent")
    same(await s.lib.download(sent["files"][1][2]), b"\x00--\r\n", "content of the second")
    only = await s.lib.send(GENERAL, files=[("only.bin", b"1")])
    same((only["text"], len(only["files"])), ("", 1), "a file without text")
    s.fake.control("clock", {"advance_ms": 86_400_000 + 1000})
    fresh = (await s.lib.fetch(GENERAL, sent["id"]))["files"][0][2]
    same(await s.lib.download(fresh), PNG, "a day later, with a fresh address")
    try:
        await s.lib.download(sent["files"][0][2])
    except Exception:
        return
    raise AssertionError("an old address can be used after a day")


@check
async def forwarded_and_voice(s):
    said = int(s.say("original")["id"])
    s.say("", forward=[GENERAL, said])
    await s.next("message")
    same((await s.next("message"))["snapshots"], ["original"], "forwarded")
    s.say("", voice=True, files=[{"name": "voice-message.ogg", "mime": "audio/ogg", "content": "o"}])
    same((await s.next("message"))["files"][0][0], "voice-message.ogg", "voice message")


@check
async def history_is_paged(s):
    ids = [int(s.say(f"n{number}")["id"]) for number in range(120)]
    await s.next("message")
    got = await s.lib.history(GENERAL, limit=120)
    same([it["id"] for it in got], ids[::-1], "all, newest first")
    behind = await s.lib.history(GENERAL, after=ids[110], limit=20)
    same(sorted(it["id"] for it in behind), ids[111:], "those behind one")
    before = await s.lib.history(GENERAL, before=ids[5], limit=3)
    same([it["id"] for it in before], ids[2:5][::-1], "those before one")


@check
async def typing_both_ways(s):
    s.fake.act("type", channel=GENERAL, by=ANN)
    same((await s.next("raw_typing"))["user"], ANN, "of a user")
    await s.lib.typing(GENERAL)
    same(s.fake.channel(GENERAL)["typing"][-1]["user"], str(BOT), "of the bot")


@check
async def members_roles_and_channels(s):
    carl = 1100000000000000013
    s.fake.act("add_user", id=carl, username="carl")
    s.fake.act("join", guild=GUILD, user=carl)
    same((await s.next("member_join"))["user"], carl, "joined")
    s.fake.act("change_member", guild=GUILD, user=carl, nick="CC", roles=[ROLE])
    got = await s.next("member_update")
    same((got["nick"], ROLE in got["roles"]), ("CC", True), "changed")
    s.fake.act("leave", guild=GUILD, user=carl)
    same((await s.next("member_remove"))["user"], carl, "left")
    s.fake.act("put_role", guild=GUILD, id=ROLE + 1, name="New")
    same((await s.next("guild_role_create"))["id"], ROLE + 1, "role")
    s.fake.act("put_role", guild=GUILD, id=ROLE + 1, name="Newer")
    same((await s.next("guild_role_update"))["title"], "Newer", "role renamed")
    s.fake.act("delete_role", guild=GUILD, role=ROLE + 1)
    await s.next("guild_role_delete")
    s.fake.act("add_channel", id=GENERAL + 50, guild=GUILD, name="extra")
    same((await s.next("guild_channel_create"))["title"], "extra", "channel")
    s.fake.act("change_channel", channel=GENERAL + 50, name="other")
    same((await s.next("guild_channel_update"))["title"], "other", "channel renamed")
    s.fake.act("delete_channel", channel=GENERAL + 50)
    same((await s.next("guild_channel_delete"))["id"], GENERAL + 50, "channel deleted")


@check
async def refusals_have_codes_and_words(s):
    await s.refused(50035, s.lib.send(GENERAL, "x" * 2001), "Must be 2000 or fewer in length.")
    same((await s.lib.send(GENERAL, "🧊" * 2000))["text"], "🧊" * 2000, "2,000 characters")
    await s.refused(50001, s.lib.send(HIDDEN, "x"), "Missing Access")
    await s.refused(10003, s.lib.send(1100000000000009999, "x"), "Unknown Channel")
    same(s.fake.control("state")["invalid_requests"], 1, "requests that count as invalid")


@check
async def slash_commands(s):
    same(await s.lib.command("ask", "Ask something"), ["ask"], "global")
    same(await s.lib.command("here", "Only here", guild=GUILD), ["here"], "of the guild")
    same((await s.lib.commands(), await s.lib.commands(GUILD)), (["ask"], ["here"]), "listed")
    made = s.fake.act("interact", kind="command", bot=BOT, by=ANN, channel=GENERAL, name="ask",
                      options=[{"name": "what", "type": 3, "value": "time"}])
    got = await s.next("interaction")
    same((got["kind"], got["command"], got["options"]), (2, "ask", {"what": "time"}), "command")
    same((got["user"], got["nick"], got["channel"]), (ANN, "Annie", GENERAL), "from")
    await s.lib.answer(got["it"], "noon")
    seen = await s.fake.answered(made)
    same((seen["answer"]["type"], seen["original"]["content"]), (4, "noon"), "answer")
    same((await s.next("message"))["text"], "noon", "the answer is a message too")
    same((await s.lib.original(got["it"]))["text"], "noon", "original")
    same((await s.lib.edit_original(got["it"], "one"))["text"], "one", "original edited")
    same((await s.lib.follow_up(got["it"], "more"))["text"], "more", "follow-up")
    await s.lib.delete_original(got["it"])
    same(s.fake.control("interaction", id=made["id"])["original"], None, "original deleted")


@check
async def deferred_and_ephemeral_answers(s):
    await s.lib.command("ask", "Ask something")
    ask = lambda: s.fake.act("interact", kind="command", bot=BOT, by=ANN, name="ask", channel=GENERAL)  # noqa: E731
    made = ask()
    got = await s.next("interaction")
    await s.lib.defer(got["it"])
    same((await s.fake.answered(made))["original"]["flags"] & 128, 128, "loading")
    same((await s.lib.edit_original(got["it"], "done"))["text"], "done", "filled in")
    same(s.fake.control("interaction", id=made["id"])["original"]["flags"] & 128, 0, "no longer loading")
    made = ask()
    got = await s.next("interaction")
    await s.lib.answer(got["it"], "only you", ephemeral=True)
    same((await s.fake.answered(made))["original"]["only_for"], str(ANN), "ephemeral")
    same("only you" in [it["text"] for it in await s.lib.history(GENERAL, limit=50)], False, "not in the channel")
    made = ask()
    got = await s.next("interaction")
    s.fake.control("clock", {"advance_ms": 3_500})
    await s.refused(10062, s.lib.answer(got["it"], "late"), "Unknown interaction")
    made = ask()
    got = await s.next("interaction")
    await s.lib.answer(got["it"], "in time")
    s.fake.control("clock", {"advance_ms": 900_500})
    await s.refused(50027, s.lib.follow_up(got["it"], "too late"), "Invalid Webhook Token")


@check
async def buttons_menus_and_forms(s):
    sent = await s.lib.send(GENERAL, "sure?", buttons=["yes", "no"])
    same(sent["buttons"], ["yes", "no"], "buttons")
    press = lambda name: s.fake.act("interact", kind="button", bot=BOT, by=ANN, channel=GENERAL, message=sent["id"], custom_id=name)  # noqa: E731
    made = press("yes")
    got = await s.next("interaction")
    same((got["kind"], got["custom_id"], got["message_id"], got["user"]), (3, "yes", sent["id"], ANN), "pressed")
    await s.lib.form(got["it"], "form", "Why?")
    same((await s.fake.answered(made))["answer"]["data"]["custom_id"], "form", "form")
    made = s.fake.act("interact", kind="modal", bot=BOT, by=ANN, channel=GENERAL, message=sent["id"], custom_id="form",
                      fields=[["why", "because"]])
    got = await s.next("interaction")
    same((got["kind"], got["custom_id"]), (5, "form"), "submitted")
    await s.lib.answer(got["it"], "thanks")
    await s.fake.answered(made)
    made = press("no")
    got = await s.next("interaction")
    await s.lib.update(got["it"], "cancelled")
    await s.fake.answered(made)
    seen = await s.lib.fetch(GENERAL, sent["id"])
    same((seen["text"], seen["buttons"]), ("cancelled", []), "message updated")
    menu = await s.lib.send(GENERAL, "which?", menu=("pick", ["a", "b"]))
    made = s.fake.act("interact", kind="select", bot=BOT, by=ANN, channel=GENERAL, message=menu["id"], custom_id="pick", values=["b"])
    got = await s.next("interaction")
    same((got["kind"], got["custom_id"], got["values"]), (3, "pick", ["b"]), "chosen")
    await s.lib.answer(got["it"], "b it is")
    await s.fake.answered(made)


@check
async def autocomplete(s):
    await s.lib.command("ask", "Ask something")
    made = s.fake.act("interact", kind="autocomplete", bot=BOT, by=ANN, channel=GENERAL, name="ask",
                      options=[{"name": "what", "type": 3, "value": "t", "focused": True}])
    got = await s.next("interaction")
    same(got["kind"], 4, "autocomplete")
    await s.lib.choices(got["it"], "time", "tide")
    same([it["name"] for it in (await s.fake.answered(made))["answer"]["data"]["choices"]], ["time", "tide"], "choices")
