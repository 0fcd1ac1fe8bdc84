"""The fake Telegram server, driven by client libraries that others wrote: python-telegram-bot and aiogram.

  FRONTDESK_FAKE_TELEGRAM_BIN=path/to/examples/fake_telegram tests/vendors/telegram.py [--only PATTERN]

Every answer and every update is also judged by the published description of the Bot API, if it is there
(FRONTDESK_SCHEMAS names its folder). One line per check; the last line is the tally.
"""

import argparse
import asyncio
import copy
import logging
import os
import re
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
# This file has the name of a library that it needs, so its folder comes last.
here = str(Path(__file__).resolve().parent)
sys.path = [path for path in sys.path if path and os.path.realpath(path) != here] + [here]

import bot_api_schema  # noqa: E402
from telegram_libraries import LIBRARIES  # noqa: E402
from telegram_scene import (  # noqa: E402
    ANN, BOB, BOT, CHANNEL, FORUM, GROUP, JPEG, NEW, OLD, Failed, Fake, Scene, same,
)

checks = []


def check(function):
    checks.append(function)
    return function


@check
async def the_bot_knows_itself(s):
    me = await s.bot.get_me()
    same((me.id, me.username, me.is_bot, me.can_read_all_group_messages), (BOT, "desk_bot", True, True), "getMe")


@check
async def wrong_tokens_are_refused(s):
    other = type(s.lib)(s.fake.url, "7001:AAfake-token-that-is-wrong", s.judge)
    await s.refused("token", other.bot.get_me())
    await other.bot.session.close() if hasattr(other.bot, "session") else await other.close()


@check
async def texts_in_every_kind_of_chat(s):
    await s.drain()
    s.say(ANN, "hi 🧊 @desk_bot")
    s.say(GROUP, "/go@desk_bot now")
    s.fake.act("say", chat=CHANNEL, text="news")
    private, group, channel = await s.updates(3)
    same((private.message.chat.type, private.message.from_user.username), ("private", "ann_b"), "private")
    mention = private.message.entities[0]
    same((mention.type, mention.offset, mention.length), ("mention", 6, 9), "the mention, in UTF-16 units")
    same((group.message.chat.type, group.message.entities[0].type), ("group", "bot_command"), "group")
    same((channel.channel_post.text, channel.channel_post.sender_chat.id), ("news", CHANNEL), "channel")


@check
async def replies_and_quotes(s):
    sent = await s.bot.send_message(chat_id=GROUP, text="one two three")
    await s.drain()
    s.say(GROUP, "whole", reply_to=sent.message_id)
    s.say(GROUP, "part", reply_to=sent.message_id, quote="two")
    whole, part = [update.message for update in await s.updates(2)]
    same((whole.reply_to_message.text, whole.quote), ("one two three", None), "whole")
    same((part.quote.text, part.quote.position, part.quote.is_manual), ("two", 4, True), "part")
    answer = await s.bot.send_message(chat_id=GROUP, text="b", reply_parameters=s.lib.reply(whole.message_id))
    same(answer.reply_to_message.message_id, whole.message_id, "reply of the bot")
    gone = s.lib.reply(9999)
    await s.refused("bad", s.bot.send_message(chat_id=GROUP, text="b", reply_parameters=gone), "message to be replied not found")
    lenient = s.lib.reply(9999, allow_sending_without_reply=True)
    same((await s.bot.send_message(chat_id=GROUP, text="b", reply_parameters=lenient)).reply_to_message, None, "lenient")


@check
async def topics(s):
    await s.drain()
    topic = await s.bot.create_forum_topic(chat_id=FORUM, name="Plans")
    thread = topic.message_thread_id
    s.say(FORUM, "inside", topic=thread)
    s.say(FORUM, "general")
    inside, general = [update.message for update in await s.updates(2)]
    same((inside.message_thread_id, inside.is_topic_message), (thread, True), "in the topic")
    same(inside.reply_to_message.forum_topic_created.name, "Plans", "anchor of the topic")
    same((general.message_thread_id, general.is_topic_message, general.chat.is_forum), (None, None, True), "General")
    sent = await s.bot.send_message(chat_id=FORUM, text="a", message_thread_id=thread)
    same((sent.message_thread_id, sent.is_topic_message), (thread, True), "sent to the topic")
    await s.refused("bad", s.bot.send_message(chat_id=FORUM, text="a", message_thread_id=1), "message thread not found")
    await s.bot.edit_forum_topic(chat_id=FORUM, message_thread_id=thread, name="Other")
    await s.bot.close_forum_topic(chat_id=FORUM, message_thread_id=thread)
    same([(it["name"], it["closed"]) for it in s.fake.chat(FORUM)["topics"]], [("Other", True)], "topics")
    opened = s.fake.act("open_topic", chat=FORUM, **{"from": ANN}, name="Hers")
    created = (await s.updates(1))[0].message
    same((created.forum_topic_created.name, created.message_thread_id), ("Hers", opened["message_thread_id"]), "opened")


@check
async def files_of_users(s):
    await s.drain()
    at = {"chat": ANN, "from": ANN}
    for kind in ("photo", "voice", "video", "document", "audio", "animation", "sticker"):
        s.fake.act("media", **at, kind=kind, content_hex=JPEG.hex(), file_name=None if kind == "photo" else "n.bin")
    s.fake.act("location", **at, latitude=48.2, longitude=16.37)
    s.fake.act("media", **at, kind="document", content="x", size=30_000_000, file_name="large.iso", caption="see @ann_b")
    got = [update.message for update in await s.updates(9)]
    same(len(got[0].photo), 3, "sizes of a photo")
    for message, kind in zip(got, ("photo", "voice", "video", "document", "audio", "animation", "sticker")):
        media = message.photo[-1] if kind == "photo" else getattr(message, kind)
        same(media.file_size, len(JPEG), f"size of {kind}")
        same(await s.lib.download(await s.bot.get_file(media.file_id)), JPEG, f"content of {kind}")
    same((got[7].location.latitude, got[8].caption), (48.2, "see @ann_b"), "location and caption")
    same(got[8].caption_entities[0].type, "mention", "entities of a caption")
    await s.refused("bad", s.bot.get_file(got[8].document.file_id), "file is too big")


@check
async def albums_come_as_separate_updates(s):
    await s.drain()
    files = [{"kind": "photo", "content": "1", "caption": "both"}, {"kind": "photo", "content": "2"}]
    s.fake.act("album", chat=GROUP, **{"from": ANN}, files=files)
    first, second = [update.message for update in await s.updates(2)]
    same(first.media_group_id, second.media_group_id, "album")
    same((first.caption, second.caption), ("both", None), "captions")


@check
async def edits_members_and_service_messages(s):
    kinds = ["message", "edited_message", "edited_channel_post", "channel_post", "my_chat_member", "chat_member",
             "message_reaction"]
    await s.drain(kinds)
    said = s.say(GROUP, "first")
    s.fake.act("edit", chat=GROUP, message_id=said["message_id"], text="second")
    s.fake.act("join", chat=GROUP, **{"from": ANN}, users=[BOB])
    s.fake.act("member", chat=GROUP, **{"from": ANN}, user=BOB, status="restricted")
    s.fake.act("member", chat=GROUP, **{"from": ANN}, user=BOT, status="member")
    s.fake.act("block", chat=ANN, blocked=True)
    s.fake.act("react", chat=ANN, **{"from": ANN}, message_id=1, emoji="🔥")
    s.fake.act("migrate", chat=OLD, **{"from": ANN}, to=NEW)
    got = await s.updates(10, allowed_updates=kinds)
    same((got[1].edited_message.text, got[1].edited_message.edit_date is not None), ("second", True), "edited")
    same(got[2].chat_member.new_chat_member.status, "member", "joined")
    same(got[3].message.new_chat_members[0].first_name, "Bob", "service message")
    same(got[4].chat_member.new_chat_member.status, "restricted", "restricted")
    same((got[5].my_chat_member.old_chat_member.status, got[5].my_chat_member.new_chat_member.status),
         ("administrator", "member"), "the bot itself")
    same(got[6].my_chat_member.new_chat_member.status, "kicked", "blocked")
    same(got[7].message_reaction.new_reaction[0].emoji, "🔥", "reaction")
    same((got[8].message.migrate_to_chat_id, got[9].message.migrate_from_chat_id), (NEW, OLD), "migration")


@check
async def markup_is_parsed_or_refused(s):
    sent = await s.bot.send_message(chat_id=ANN, text="*b* _i_ `c` [l](https://a.example/) ||s||", parse_mode="MarkdownV2")
    same([it.type for it in sent.entities], ["bold", "italic", "code", "text_link", "spoiler"], "MarkdownV2")
    sent = await s.bot.send_message(chat_id=ANN, text="<b>b</b> &lt; <pre><code class='language-py'>x</code></pre>", parse_mode="HTML")
    same((sent.text, [it.type for it in sent.entities], sent.entities[1].language), ("b < x", ["bold", "pre"], "py"), "HTML")
    await s.refused("bad", s.bot.send_message(chat_id=ANN, text="a.", parse_mode="MarkdownV2"), "can't parse entities: Character '.' is reserved")
    await s.refused("bad", s.bot.send_message(chat_id=ANN, text="*a", parse_mode="MarkdownV2"), "can't find end of Bold entity at byte offset 0")
    await s.refused("bad", s.bot.send_message(chat_id=ANN, text="🧊" * 2049), "message is too long")
    await s.refused("bad", s.bot.send_message(chat_id=ANN, text=" "), "message text is empty")


@check
async def sent_edited_deleted(s):
    sent = await s.bot.send_message(chat_id=ANN, text="a")
    ids = {"chat_id": ANN, "message_id": sent.message_id}
    same((await s.bot.edit_message_text(text="b", **ids)).text, "b", "edited")
    await s.refused("bad", s.bot.edit_message_text(text="b", **ids), "message is not modified")
    same(s.fake.chat(ANN)["messages"][-1]["text"], "b", "as the user sees it")
    await s.bot.send_chat_action(chat_id=ANN, action="typing")
    same(s.fake.chat(ANN)["actions"][-1]["action"], "typing", "typing")
    await s.bot.set_message_reaction(chat_id=ANN, message_id=1, reaction=s.lib.reaction("👀"))
    same(s.fake.chat(ANN)["messages"][0]["reactions"][0]["reaction"], [{"type": "emoji", "emoji": "👀"}], "reaction")
    await s.refused("bad", s.bot.set_message_reaction(chat_id=ANN, message_id=1, reaction=s.lib.reaction("✅")), "REACTION_INVALID")
    await s.bot.delete_message(**ids)
    same(len(s.fake.chat(ANN)["messages"]), 1, "messages that are left")
    await s.refused("bad", s.bot.delete_message(**ids), "message to delete not found")
    await s.bot.send_location(chat_id=ANN, latitude=1.5, longitude=2.5)
    await s.bot.send_message_draft(chat_id=ANN, draft_id=3, text="thinking")
    same(s.fake.chat(ANN)["drafts"]["3"]["text"], "thinking", "draft")


@check
async def keyboards_and_callbacks(s):
    await s.drain()
    keyboard = s.lib.keyboard([[("Yes", "y" * 64), ("No", "n")]])
    sent = await s.bot.send_message(chat_id=ANN, text="?", reply_markup=keyboard)
    same(sent.reply_markup.inline_keyboard[0][1].text, "No", "keyboard")
    pressed = s.fake.act("press", chat=ANN, **{"from": ANN}, message_id=sent.message_id, label="Yes")
    query = (await s.updates(1))[0].callback_query
    same((query.id, query.data, query.message.message_id), (pressed["callback_query_id"], "y" * 64, sent.message_id), "query")
    await s.bot.answer_callback_query(callback_query_id=query.id, text="done")
    same(s.fake.control(f"callback?id={query.id}")["text"], "done", "answer")
    await s.refused("bad", s.bot.answer_callback_query(callback_query_id=query.id), "query is too old")
    await s.bot.edit_message_reply_markup(chat_id=ANN, message_id=sent.message_id, reply_markup=None)
    same("reply_markup" in s.fake.chat(ANN)["messages"][-1], False, "keyboard is gone")
    long = s.lib.keyboard([[("Yes", "y" * 65)]])
    await s.refused("bad", s.bot.send_message(chat_id=ANN, text="?", reply_markup=long), "BUTTON_DATA_INVALID")


@check
async def uploads_and_downloads(s):
    for kind in ("photo", "document", "video", "audio", "voice", "animation", "sticker"):
        send = getattr(s.bot, f"send_{kind}")
        more = {} if kind == "sticker" else {"caption": "*c*", "parse_mode": "MarkdownV2"}
        sent = await send(chat_id=ANN, **{kind: s.lib.file(JPEG, f"ü {kind}.bin")}, **more)
        media = sent.photo[-1] if kind == "photo" else getattr(sent, kind)
        same(await s.lib.download(await s.bot.get_file(media.file_id)), JPEG, f"content of {kind}")
        again = await send(chat_id=GROUP, **{kind: media.file_id})
        same(again.chat.id, GROUP, f"{kind} by id")
    await s.bot.send_photo(chat_id=ANN, photo="https://a.example/p.jpg")
    await s.refused("bad", s.bot.send_photo(chat_id=ANN, photo="no-such-id"), "wrong file identifier")
    await s.refused("bad", s.bot.send_photo(chat_id=ANN, photo="https://a.example/p.jpg", caption="x" * 1025), "caption is too long")
    album = await s.bot.send_media_group(chat_id=ANN, media=[s.lib.photo_of_album(JPEG, "both"), s.lib.photo_of_album(JPEG)])
    same((album[0].media_group_id == album[1].media_group_id, album[0].caption), (True, "both"), "album")


@check
async def chats_members_commands(s):
    full = await s.bot.get_chat(chat_id=FORUM)
    same((full.title, full.is_forum), ("Forum", True), "getChat")
    same((await s.bot.get_chat(chat_id="@news_of")).id, CHANNEL, "by name")
    same((await s.bot.get_chat_member(chat_id=GROUP, user_id=ANN)).status, "creator", "owner")
    same((await s.bot.get_chat_member(chat_id=GROUP, user_id=BOB)).status, "left", "not a member")
    await s.refused("bad", s.bot.get_chat_member(chat_id=GROUP, user_id=9999), "user not found")
    same(sorted(it.status for it in await s.bot.get_chat_administrators(chat_id=GROUP)), ["administrator", "creator"], "admins")
    await s.bot.set_my_commands(commands=[s.lib.command("go", "Go")])
    same([it.command for it in await s.bot.get_my_commands()], ["go"], "commands")
    await s.bot.delete_my_commands()
    same(len(await s.bot.get_my_commands()), 0, "commands are gone")


@check
async def refusals_have_the_classes_of_the_library(s):
    await s.refused("bad", s.bot.send_message(chat_id=123456, text="a"), "chat not found")
    s.fake.act("block", chat=ANN, blocked=True)
    await s.refused("forbidden", s.bot.send_message(chat_id=ANN, text="a"), "bot was blocked by the user")
    s.fake.act("member", chat=FORUM, user=BOT, status="kicked")
    await s.refused("forbidden", s.bot.send_message(chat_id=FORUM, text="a"), "bot was kicked from the supergroup chat")
    s.fake.act("migrate", chat=OLD, to=NEW)
    error = await s.refused("moved", s.bot.send_message(chat_id=OLD, text="a"))
    same(s.lib.moved_to(error), NEW, "new id")
    s.fake.fault("sendMessage", "retry_after", seconds=7)
    error = await s.refused("rate", s.bot.send_message(chat_id=GROUP, text="a"))
    same(s.lib.retry_after(error), 7, "retry_after")
    s.fake.fault("sendMessage", "status", code=500, description="Internal Server Error")
    await s.refused("server", s.bot.send_message(chat_id=GROUP, text="a"))
    for fault, kind in (("bad_gateway", "html"), ("drop_before", "broken"), ("drop_after", "broken"), ("cut", "cut")):
        s.fake.fault("sendMessage", fault)
        await s.refused(kind, s.bot.send_message(chat_id=GROUP, text=fault))
    same([it["text"] for it in s.fake.chat(GROUP)["messages"]], ["drop_after", "cut"], "calls that took effect")


@check
async def rate_limits_are_refused_with_a_pause(s):
    s.fake.control("limits", {"enabled": True, "chat": {"burst": 3, "every_ms": 60_000}})
    for _ in range(3):
        await s.bot.send_message(chat_id=ANN, text="a")
    error = await s.refused("rate", s.bot.send_message(chat_id=ANN, text="a"))
    s.fake.control("clock", {"advance_ms": int(s.lib.retry_after(error)) * 1000})
    await s.bot.send_message(chat_id=ANN, text="a")
    same(s.fake.control("state")["refused_for_rate"], 1, "429s")


@check
async def two_polls_conflict(s):
    await s.drain()
    older = asyncio.create_task(s.bot.get_updates(timeout=20))
    # The first ones may overtake it; one that comes while it waits ends it.
    for _ in range(200):
        newer = await s.bot.get_updates(timeout=0)
        if older.done():
            break
        await asyncio.sleep(0.01)
    same(len(newer), 0, "updates of the newer poll")
    await s.refused("conflict", older, "terminated by other getUpdates request")
    await s.bot.set_webhook(url="https://desk.example/hook")
    await s.refused("conflict", s.bot.get_updates(), "can't use getUpdates method while webhook is active")
    same((await s.bot.get_webhook_info()).url, "https://desk.example/hook", "webhook")
    await s.bot.delete_webhook()


@check
async def updates_come_twice_and_in_reverse(s):
    await s.drain()
    s.say(ANN, "a")
    s.say(ANN, "b")
    s.fake.fault("getUpdates", "duplicate_updates")
    same([it.message.text for it in await s.bot.get_updates()], ["a", "a", "b", "b"], "twice")
    s.fake.fault("getUpdates", "reverse_updates")
    same([it.message.text for it in await s.bot.get_updates()], ["b", "a"], "in reverse")


@check
async def the_polling_loop_of_the_library(s):
    await s.drain()
    async with s.lib.running() as (seen, _):
        for number in range(20):
            s.say(ANN, f"n{number}")
            if number == 10:
                s.fake.fault("getUpdates", "status", code=502, description="Bad Gateway")
        got = [(await asyncio.wait_for(seen.get(), 20)).message.text for _ in range(20)]
    same(got, [f"n{number}" for number in range(20)], "messages")


@check
async def the_webhook_server_of_the_library(s):
    await s.drain()
    async with s.lib.running(webhook="se-cret_1") as (seen, _):
        s.fake.fault("webhook", "duplicate_updates")
        s.say(ANN, "one")
        s.say(GROUP, "two")
        got = [(await asyncio.wait_for(seen.get(), 20)).message.text for _ in range(3)]
        # The answer of the library comes after its handler has seen the update.
        end = time.monotonic() + 10
        while (waiting := s.fake.control(f"state?bot={BOT}")["updates_waiting"]) and time.monotonic() < end:
            await asyncio.sleep(0.02)
    same(got, ["one", "one", "two"], "messages")
    # The server knows the secret only from the fake: with another one nothing would have come.
    same(waiting, 0, "updates that wait")


@check
async def the_description_finds_mistakes(s):
    if not s.schema:
        return
    good = {"update_id": 1, "message": s.say(ANN, "@ann_b")}
    same(s.schema.problems_of_update(good), [], "a good update")

    def changed(change):
        update = copy.deepcopy(good)
        change(update["message"])
        return update

    mistakes = {
        "a missing field": lambda it: it.pop("date"),
        "an unknown field": lambda it: it.update(colour="red"),
        "a number as text": lambda it: it.update(message_id="1"),
        "a flag as number": lambda it: it["from"].update(is_bot=0),
        "an entity without length": lambda it: it["entities"][0].pop("length"),
    }
    for what, change in mistakes.items():
        same(len(s.schema.problems_of_update(changed(change))), 1, what)


async def attempt(fake, library, schema, function):
    scene = Scene(fake, library, schema)
    try:
        await scene.lib.open()
        await asyncio.wait_for(function(scene), 60)
        if scene.problems:
            raise Failed(f"not as described: {'; '.join(scene.problems[:5])}")
    finally:
        await scene.lib.close()
    return scene.judged


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", metavar="PATTERN")
    args = parser.parse_args()
    # The libraries log the faults that are put before them.
    logging.disable(logging.CRITICAL)
    binary = os.environ.get("FRONTDESK_FAKE_TELEGRAM_BIN")
    if not binary:
        print("FRONTDESK_FAKE_TELEGRAM_BIN is not set", file=sys.stderr)
        return 2
    schema, path = bot_api_schema.find()
    if schema is None:
        print(f"skipped: answers are not judged by the description of the Bot API, because {path} is not there")
    passed, failed, judged = 0, 0, 0
    fake = Fake(binary)
    try:
        for library in LIBRARIES:
            for function in checks:
                name = f"{library.title} {function.__name__}"
                if args.only and not re.search(args.only, name):
                    continue
                began = time.monotonic()
                try:
                    judged += asyncio.run(attempt(fake, library, schema, function))
                    passed += 1
                    print(f"ok {name} ({time.monotonic() - began:.1f} s)", flush=True)
                except Exception as exc:
                    failed += 1
                    text = str(exc) if isinstance(exc, Failed) else f"{type(exc).__name__}: {exc}"
                    print(f"FAILED {name}: {text}", flush=True)
    finally:
        fake.close()
    if schema:
        print(f"{judged} answers were judged by the description of the Bot API")
    print(f"{passed} passed, {failed} failed", flush=True)
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
