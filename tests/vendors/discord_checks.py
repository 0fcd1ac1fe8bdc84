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
    same(await s.lib.member(GUILD, ANN), {"user": ANN, "nick": "Annie", "roles": await roles_of(s)}, "member")


async def roles_of(s):
    # One of the two libraries counts @everyone as a role of its members.
    return {ROLE, GUILD} if s.lib.title == "discord.py" else {ROLE}


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
