"""The two client libraries behind few names. Messages and events are plain dictionaries, filled from the library's objects."""

import asyncio
import io

import discord
import discord.gateway
import discord.http
import hikari
import yarl

SECONDS = 10
CONNECT = discord.gateway.DiscordWebSocket.from_client


class DiscordPy:
    title = "discord.py"
    refusal = discord.HTTPException
    heartbeat_ms = 400

    def __init__(self, fake, token, intents=None, plain=False, patience_s=60, judge=None, sharded=False):
        discord.http.Route.BASE = fake.base_url
        discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY = yarl.URL(fake.gateway_url)
        self.token, self.events = token, asyncio.Queue()
        lib = self

        class Client(discord.AutoShardedClient if sharded else discord.Client):
            def dispatch(self, event, /, *args, **more):
                super().dispatch(event, *args, **more)
                lib.on(event, args)

        # It counts the time since the last frame of any kind.
        self.client = Client(intents=intents or discord.Intents.all(), heartbeat_timeout=patience_s, max_ratelimit_timeout=60,
                             enable_debug_events=True)
        self.judge = judge
        self.tree = discord.app_commands.CommandTree(self.client)
        self.is_plain, self.task = plain, None

    def on(self, event, args):
        if event == "socket_raw_receive" and self.judge:
            self.judge.dispatched(args[0])
        convert = getattr(self, f"on_{event}", None)
        if convert:
            self.events.put_nowait({"name": event, **(convert(*args) or {})})

    on_connect = on_disconnect = on_ready = on_resumed = lambda self: None

    def on_message(self, message):
        return self.message(message)

    def on_raw_message_edit(self, payload):
        return self.message(payload.message)

    def on_raw_message_delete(self, payload):
        return {"id": payload.message_id, "channel": payload.channel_id}

    def on_raw_reaction_add(self, payload):
        return {"id": payload.message_id, "user": payload.user_id, "emoji": str(payload.emoji)}

    on_raw_reaction_remove = on_raw_reaction_add

    def on_thread_create(self, thread):
        return self.channel(thread)

    on_thread_join = on_thread_create

    def on_raw_thread_update(self, payload):
        return {"id": payload.thread_id, "title": payload.data["name"], "archived": payload.data["thread_metadata"]["archived"]}

    def on_raw_thread_delete(self, payload):
        return {"id": payload.thread_id}

    def on_member_join(self, member):
        return {"user": member.id, "nick": member.nick}

    on_member_remove = on_member_join

    def on_member_update(self, before, after):
        return {"user": after.id, "nick": after.nick, "roles": {role.id for role in after.roles}}

    def on_guild_role_create(self, role):
        return {"id": role.id, "title": role.name}

    on_guild_role_delete = on_guild_role_create

    def on_guild_role_update(self, before, after):
        return {"id": after.id, "title": after.name}

    def on_guild_channel_create(self, channel):
        return {"id": channel.id, "title": channel.name}

    on_guild_channel_delete = on_guild_channel_create

    def on_guild_channel_update(self, before, after):
        return {"id": after.id, "title": after.name}

    def on_raw_typing(self, payload):
        return {"user": payload.user_id, "channel": payload.channel_id}

    def on_interaction(self, it):
        data = it.data or {}
        options = {option["name"]: option.get("value") for option in data.get("options", [])}
        return {"it": it, "kind": it.type.value, "user": it.user.id, "nick": getattr(it.user, "nick", None),
                "command": data.get("name"), "options": options, "custom_id": data.get("custom_id"),
                "values": data.get("values"), "message_id": it.message and it.message.id, "channel": it.channel_id}

    def message(self, it):
        return {"id": it.id, "channel": it.channel.id, "guild": it.guild and it.guild.id, "author": it.author.id,
                "nick": getattr(it.author, "nick", None), "text": it.content, "type": it.type.value,
                "mentions": [user.id for user in it.mentions], "roles": [role.id for role in it.role_mentions],
                "reply_to": it.reference and it.reference.message_id, "edited": it.edited_at is not None,
                "quoted": it.reference and getattr(it.reference.resolved, "content", None),
                "files": [(file.filename, file.size, file.url) for file in it.attachments],
                "stickers": [sticker.name for sticker in it.stickers], "embeds": [embed.title for embed in it.embeds],
                "buttons": [child.custom_id for row in it.components for child in getattr(row, "children", [])],
                "reactions": {str(reaction.emoji): (reaction.count, reaction.me) for reaction in it.reactions},
                "snapshots": [snapshot.content for snapshot in it.message_snapshots], "ephemeral": it.flags.ephemeral}

    def channel(self, it):
        return {"id": it.id, "title": it.name, "parent": it.parent_id, "owner": it.owner_id, "type": it.type.value}

    async def open(self):
        await self.client.login(self.token)
        if self.is_plain:
            discord.gateway.DiscordWebSocket.from_client = lambda client, **more: CONNECT(client, compress=False, **more)
        self.task = asyncio.create_task(self.client.connect(reconnect=True))

    async def ended(self):
        """Why the connection ended for good: the class of the error and the close code."""
        try:
            await asyncio.wait_for(self.task, SECONDS)
        except discord.ConnectionClosed as error:
            return error.code
        except discord.LoginFailure:
            return 4004
        except discord.PrivilegedIntentsRequired:
            return 4014

    async def close(self):
        await self.client.close()
        if self.task:
            await asyncio.wait([self.task], timeout=SECONDS)
        discord.gateway.DiscordWebSocket.from_client = CONNECT

    def code_of(self, error):
        return error.code

    def text_of(self, error):
        return error.text

    def cached(self, guild):
        it = self.client.get_guild(guild)
        return {"title": it.name, "channels": {channel.name: channel.type.value for channel in it.channels},
                "members": {member.id: member.nick for member in it.members}, "roles": {role.name for role in it.roles}}

    def at(self, channel):
        return self.client.get_partial_messageable(channel)

    def buttons(self, *names):
        view = discord.ui.View(timeout=None)
        for name in names:
            view.add_item(discord.ui.Button(label=name, custom_id=name))
        return view

    async def send(self, channel, text=None, reply_to=None, files=(), buttons=None, no_mentions=False, menu=None, embed=None):
        more = {}
        if reply_to:
            more["reference"] = discord.MessageReference(message_id=reply_to, channel_id=channel)
        if buttons:
            more["view"] = self.buttons(*buttons)
        if no_mentions:
            more["allowed_mentions"] = discord.AllowedMentions.none()
        if menu:
            options = [discord.SelectOption(label=name, value=name) for name in menu[1]]
            more["view"] = discord.ui.View(timeout=None).add_item(discord.ui.Select(custom_id=menu[0], options=options))
        if embed:
            more["embed"] = discord.Embed(title=embed)
        files = [discord.File(io.BytesIO(content), name) for name, content in files]
        return self.message(await self.at(channel).send(text, files=files, **more))

    async def edit(self, channel, message, text):
        return self.message(await self.at(channel).get_partial_message(message).edit(content=text))

    async def delete(self, channel, message):
        await self.at(channel).get_partial_message(message).delete()

    async def react(self, channel, message, emoji):
        await self.at(channel).get_partial_message(message).add_reaction(emoji)

    async def unreact(self, channel, message, emoji):
        await self.at(channel).get_partial_message(message).remove_reaction(emoji, self.client.user)

    async def fetch(self, channel, message):
        return self.message(await self.at(channel).fetch_message(message))

    async def history(self, channel, **bounds):
        bounds = {name: discord.Object(value) if name != "limit" else value for name, value in bounds.items()}
        return [self.message(it) async for it in self.at(channel).history(**bounds)]

    async def typing(self, channel):
        await self.at(channel).typing()

    async def download(self, url):
        return await self.client.http.get_from_cdn(url)

    async def open_dm(self, user):
        return (await self.client.create_dm(discord.Object(user))).id

    async def thread_on(self, channel, message, title):
        return self.channel(await (await self.client.get_channel(channel).fetch_message(message)).create_thread(name=title))

    async def thread(self, channel, title, private=False):
        kind = discord.ChannelType.private_thread if private else discord.ChannelType.public_thread
        return self.channel(await self.client.get_channel(channel).create_thread(name=title, type=kind))

    async def forum_post(self, channel, title, text):
        made = await self.client.get_channel(channel).create_thread(name=title, content=text)
        return self.channel(made.thread), self.message(made.message)

    async def rename(self, thread, title):
        return self.channel(await (await self.client.fetch_channel(thread)).edit(name=title))

    async def threads(self, guild):
        return [self.channel(it) for it in await self.client.get_guild(guild).active_threads()]

    async def join_thread(self, thread):
        await (await self.client.fetch_channel(thread)).join()

    async def member(self, guild, user):
        it = await self.client.get_guild(guild).fetch_member(user)
        return {"user": it.id, "nick": it.nick, "roles": {role.id for role in it.roles}}

    async def facts(self, guild):
        it = await self.client.fetch_guild(guild)
        channels = await it.fetch_channels()
        application = await self.client.application_info()
        return {"title": it.name, "channels": {channel.id for channel in channels}, "roles": {role.name for role in await it.fetch_roles()},
                "key": application.verify_key}

    async def command(self, name, text, guild=None):
        """Registers the whole list: one command."""
        self.tree.clear_commands(guild=guild and discord.Object(guild))

        async def run(interaction: discord.Interaction, what: str):
            pass

        made = discord.app_commands.Command(name=name, description=text, callback=run)
        self.tree.add_command(made, guild=guild and discord.Object(guild))
        return [it.name for it in await self.tree.sync(guild=guild and discord.Object(guild))]

    async def commands(self, guild=None):
        return [it.name for it in await self.tree.fetch_commands(guild=guild and discord.Object(guild))]

    # interactions

    async def answer(self, it, text, ephemeral=False):
        await it.response.send_message(text, ephemeral=ephemeral)

    async def defer(self, it):
        await it.response.defer(thinking=True)

    async def update(self, it, text):
        await it.response.edit_message(content=text, view=None)

    async def form(self, it, custom_id, title):
        modal = discord.ui.Modal(title=title, custom_id=custom_id)
        modal.add_item(discord.ui.TextInput(label="Why", custom_id="why"))
        await it.response.send_modal(modal)

    async def choices(self, it, *names):
        await it.response.autocomplete([discord.app_commands.Choice(name=name, value=name) for name in names])

    async def original(self, it):
        return self.message(await it.original_response())

    async def edit_original(self, it, text):
        return self.message(await it.edit_original_response(content=text))

    async def delete_original(self, it):
        await it.delete_original_response()

    async def follow_up(self, it, text):
        return self.message(await it.followup.send(text, wait=True))


NAMES = {
    hikari.GuildMessageCreateEvent: "message", hikari.DMMessageCreateEvent: "message",
    hikari.GuildMessageUpdateEvent: "raw_message_edit", hikari.DMMessageUpdateEvent: "raw_message_edit",
    hikari.GuildMessageDeleteEvent: "raw_message_delete", hikari.DMMessageDeleteEvent: "raw_message_delete",
    hikari.GuildReactionAddEvent: "raw_reaction_add", hikari.DMReactionAddEvent: "raw_reaction_add",
    hikari.GuildReactionDeleteEvent: "raw_reaction_remove", hikari.DMReactionDeleteEvent: "raw_reaction_remove",
    hikari.GuildThreadCreateEvent: "thread_create", hikari.GuildThreadAccessEvent: "thread_join",
    hikari.GuildThreadUpdateEvent: "raw_thread_update", hikari.GuildThreadDeleteEvent: "raw_thread_delete",
    hikari.MemberCreateEvent: "member_join", hikari.MemberDeleteEvent: "member_remove",
    hikari.MemberUpdateEvent: "member_update", hikari.RoleCreateEvent: "guild_role_create",
    hikari.RoleUpdateEvent: "guild_role_update", hikari.RoleDeleteEvent: "guild_role_delete",
    hikari.GuildChannelCreateEvent: "guild_channel_create", hikari.GuildChannelUpdateEvent: "guild_channel_update",
    hikari.GuildChannelDeleteEvent: "guild_channel_delete", hikari.GuildTypingEvent: "raw_typing",
    hikari.DMTypingEvent: "raw_typing", hikari.InteractionCreateEvent: "interaction",
    hikari.ShardReadyEvent: "shard_ready", hikari.ShardResumedEvent: "resumed", hikari.ShardDisconnectedEvent: "disconnect",
    # The cache is whole when the guild has come.
    hikari.GuildAvailableEvent: "ready",
}


class Hikari:
    title = "hikari"
    refusal = hikari.HTTPResponseError
    heartbeat_ms = 400

    def __init__(self, fake, token, intents=None, patience_s=None, judge=None):
        # It counts acks, so it needs no patience of its own.
        self.events = asyncio.Queue()
        self.client = hikari.GatewayBot(token, banner=None, logs=None, rest_url=fake.base_url, suppress_optimization_warning=True,
                                        intents=hikari.Intents(intents.value) if intents else hikari.Intents.ALL)
        for kind, name in NAMES.items():
            self.client.event_manager.subscribe(kind, self.listener(name))
        self.failure = None

    def listener(self, name):
        async def heard(event):
            convert = getattr(self, f"on_{name}", lambda _: {})
            try:
                self.events.put_nowait({"name": name, **convert(event)})
            except Exception as error:
                # The library would only log it.
                self.events.put_nowait({"name": name, "error": repr(error)})
        return heard

    def on_message(self, event):
        return self.message(event.message)

    on_raw_message_edit = on_message

    def on_raw_message_delete(self, event):
        return {"id": event.message_id, "channel": event.channel_id}

    def on_raw_reaction_add(self, event):
        return {"id": event.message_id, "user": event.user_id, "emoji": str(event.emoji_name)}

    on_raw_reaction_remove = on_raw_reaction_add

    def on_thread_create(self, event):
        return self.channel(event.thread)

    on_thread_join = on_thread_create

    def on_raw_thread_update(self, event):
        return {"id": event.thread_id, "title": event.thread.name, "archived": event.thread.is_archived}

    def on_raw_thread_delete(self, event):
        return {"id": event.thread_id}

    def on_member_join(self, event):
        return {"user": event.user_id}

    on_member_remove = on_member_join

    def on_member_update(self, event):
        return {"user": event.user_id, "nick": event.member.nickname, "roles": set(event.member.role_ids)}

    def on_guild_role_create(self, event):
        return {"id": event.role.id, "title": event.role.name}

    on_guild_role_update = on_guild_role_create

    def on_guild_role_delete(self, event):
        return {"id": event.role_id}

    def on_guild_channel_create(self, event):
        return {"id": event.channel.id, "title": event.channel.name}

    on_guild_channel_update = on_guild_channel_delete = on_guild_channel_create

    def on_raw_typing(self, event):
        return {"user": event.user_id, "channel": event.channel_id}

    def on_interaction(self, event):
        it = event.interaction
        options = {option.name: option.value for option in getattr(it, "options", None) or []}
        return {"it": it, "kind": int(it.type), "user": it.user.id, "nick": it.member and it.member.nickname,
                "command": getattr(it, "command_name", None), "options": options, "custom_id": getattr(it, "custom_id", None),
                "values": list(getattr(it, "values", None) or []) or None,
                "message_id": it.message.id if getattr(it, "message", None) else None, "channel": it.channel_id}

    def message(self, it):
        # An edit may leave out what did not change.
        known = lambda name, without: getattr(it, name, None) or without  # noqa: E731
        quoted, reference, member = known("referenced_message", None), known("message_reference", None), known("member", None)
        return {"id": it.id, "channel": it.channel_id, "guild": known("guild_id", None), "author": it.author.id,
                "nick": member.nickname if member else None, "text": known("content", ""), "type": int(known("type", 0)),
                "mentions": list(known("user_mentions_ids", [])), "roles": list(known("role_mention_ids", [])),
                "reply_to": reference.id if reference and reference.id else None, "edited": bool(known("edited_timestamp", None)),
                "quoted": quoted.content if quoted else None,
                "files": [(file.filename, file.size, file.url) for file in known("attachments", [])],
                "stickers": [sticker.name for sticker in known("stickers", [])], "embeds": [embed.title for embed in known("embeds", [])],
                "buttons": [child.custom_id for row in known("components", []) for child in row.components],
                "reactions": {str(reaction.emoji): (reaction.count, reaction.is_me) for reaction in known("reactions", [])},
                "snapshots": [snapshot.content for snapshot in known("message_snapshots", [])],
                "ephemeral": bool(known("flags", 0) & hikari.MessageFlag.EPHEMERAL)}

    def channel(self, it):
        return {"id": it.id, "title": it.name, "parent": it.parent_id, "owner": it.owner_id, "type": int(it.type)}

    async def open(self):
        async def start():
            try:
                await self.client.start(check_for_updates=False)
            except Exception as error:
                self.failure = error
        self.task = asyncio.create_task(start())

    async def ended(self):
        await asyncio.wait([self.task], timeout=SECONDS)
        error = self.failure
        if error is None:
            try:
                await asyncio.wait_for(self.client.join(), SECONDS)
            except Exception as seen:
                error = seen
        if isinstance(error, hikari.UnauthorizedError):
            return 4004
        return getattr(error, "code", None) and int(error.code)

    async def close(self):
        await asyncio.wait([self.task], timeout=SECONDS)
        if self.client.is_alive:
            await self.client.close()

    def code_of(self, error):
        return getattr(error, "code", 0)

    def text_of(self, error):
        return f"{error.message} {getattr(error, 'errors', '')} {error.raw_body}"

    def cached(self, guild):
        it = self.client.cache.get_guild(guild)
        return {"title": it.name, "channels": {channel.name: int(channel.type) for channel in it.get_channels().values()},
                "members": {member.id: member.nickname for member in it.get_members().values()},
                "roles": {role.name for role in it.get_roles().values()}}

    async def send(self, channel, text=None, reply_to=None, files=(), buttons=None, no_mentions=False, menu=None, embed=None):
        more = {"content": text} if text is not None else {}
        if reply_to:
            more.update(reply=reply_to, mentions_reply=True)
        if buttons:
            row = self.client.rest.build_message_action_row()
            for name in buttons:
                row.add_interactive_button(hikari.ButtonStyle.SECONDARY, name, label=name)
            more["component"] = row
        if menu:
            row = self.client.rest.build_message_action_row()
            picker = row.add_text_menu(menu[0])
            for name in menu[1]:
                picker.add_option(name, name)
            more["component"] = row
        if not no_mentions:
            more.update(user_mentions=True, role_mentions=True, mentions_everyone=True)
        if embed:
            more["embed"] = hikari.Embed(title=embed)
        if files:
            more["attachments"] = [hikari.Bytes(content, name) for name, content in files]
        return self.message(await self.client.rest.create_message(channel, **more))

    async def edit(self, channel, message, text):
        return self.message(await self.client.rest.edit_message(channel, message, text))

    async def delete(self, channel, message):
        await self.client.rest.delete_message(channel, message)

    async def react(self, channel, message, emoji):
        await self.client.rest.add_reaction(channel, message, emoji)

    async def unreact(self, channel, message, emoji):
        await self.client.rest.delete_my_reaction(channel, message, emoji)

    async def fetch(self, channel, message):
        return self.message(await self.client.rest.fetch_message(channel, message))

    async def history(self, channel, limit=100, **bounds):
        found = self.client.rest.fetch_messages(channel, **bounds)
        return [self.message(it) for it in await found.limit(limit)]

    async def typing(self, channel):
        await self.client.rest.trigger_typing(channel)

    async def download(self, url):
        return await hikari.URL(url).read()

    async def open_dm(self, user):
        return (await self.client.rest.create_dm_channel(user)).id

    async def thread_on(self, channel, message, title):
        return self.channel(await self.client.rest.create_message_thread(channel, message, title))

    async def thread(self, channel, title, private=False):
        kind = hikari.ChannelType.GUILD_PRIVATE_THREAD if private else hikari.ChannelType.GUILD_PUBLIC_THREAD
        return self.channel(await self.client.rest.create_thread(channel, kind, title))

    async def forum_post(self, channel, title, text):
        made = await self.client.rest.create_forum_post(channel, title, text)
        return self.channel(made), await self.fetch(made.id, made.id)

    async def rename(self, thread, title):
        return self.channel(await self.client.rest.edit_channel(thread, name=title))

    async def threads(self, guild):
        return [self.channel(it) for it in await self.client.rest.fetch_active_threads(guild)]

    async def join_thread(self, thread):
        await self.client.rest.join_thread(thread)

    async def member(self, guild, user):
        it = await self.client.rest.fetch_member(guild, user)
        return {"user": it.id, "nick": it.nickname, "roles": set(it.role_ids)}

    async def facts(self, guild):
        rest = self.client.rest
        it = await rest.fetch_guild(guild)
        application = await rest.fetch_application()
        return {"title": it.name, "channels": {channel.id for channel in await rest.fetch_guild_channels(guild)},
                "roles": {role.name for role in await rest.fetch_roles(guild)}, "key": application.public_key.hex()}

    async def command(self, name, text, guild=None):
        rest = self.client.rest
        option = hikari.CommandOption(type=hikari.OptionType.STRING, name="what", description="what", is_required=True)
        made = rest.slash_command_builder(name, text).add_option(option)
        me = (await rest.fetch_application()).id
        return [it.name for it in await rest.set_application_commands(me, [made], guild=guild or hikari.UNDEFINED)]

    async def commands(self, guild=None):
        me = (await self.client.rest.fetch_application()).id
        return [it.name for it in await self.client.rest.fetch_application_commands(me, guild=guild or hikari.UNDEFINED)]

    # interactions

    async def answer(self, it, text, ephemeral=False):
        flags = hikari.MessageFlag.EPHEMERAL if ephemeral else hikari.MessageFlag.NONE
        await it.create_initial_response(hikari.ResponseType.MESSAGE_CREATE, text, flags=flags)

    async def defer(self, it):
        await it.create_initial_response(hikari.ResponseType.DEFERRED_MESSAGE_CREATE)

    async def update(self, it, text):
        await it.create_initial_response(hikari.ResponseType.MESSAGE_UPDATE, text, components=[])

    async def form(self, it, custom_id, title):
        row = self.client.rest.build_modal_action_row().add_text_input("why", "Why")
        await it.create_modal_response(title, custom_id, component=row)

    async def choices(self, it, *names):
        await it.create_response([hikari.impl.AutocompleteChoiceBuilder(name, name) for name in names])

    async def original(self, it):
        return self.message(await it.fetch_initial_response())

    async def edit_original(self, it, text):
        return self.message(await it.edit_initial_response(text))

    async def delete_original(self, it):
        await it.delete_initial_response()

    async def follow_up(self, it, text):
        return self.message(await it.execute(text))


LIBRARIES = (DiscordPy, Hikari)
