"""The two client libraries behind the few names in which they differ. Method names and parameters are the same in both."""

import asyncio
import contextlib
import socket

import aiogram
import aiohttp.web
import telegram
import telegram.error
import telegram.ext
import telegram.request
from aiogram import exceptions, types
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.webhook.aiohttp_server import SimpleRequestHandler


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class PythonTelegramBot:
    title = "python-telegram-bot"
    errors = {
        "bad": telegram.error.BadRequest,
        "forbidden": telegram.error.Forbidden,
        "conflict": telegram.error.Conflict,
        "rate": telegram.error.RetryAfter,
        "moved": telegram.error.ChatMigrated,
        "token": telegram.error.InvalidToken,
        "server": telegram.error.NetworkError,
        "html": telegram.error.NetworkError,
        "broken": telegram.error.NetworkError,
        "cut": telegram.error.TelegramError,
    }

    def __init__(self, url, token, seen):
        class Request(telegram.request.HTTPXRequest):
            async def do_request(self, url, *args, **kwargs):
                code, payload = await super().do_request(url, *args, **kwargs)
                seen(url.rsplit("/", 1)[-1], payload)
                return code, payload

        self.bot = telegram.Bot(token, base_url=f"{url}/bot", base_file_url=f"{url}/file/bot",
                                request=Request(read_timeout=10), get_updates_request=Request(read_timeout=10))

    def retry_after(self, error):
        value = error.retry_after
        return value.total_seconds() if hasattr(value, "total_seconds") else value

    def moved_to(self, error):
        return error.new_chat_id

    def text_of(self, error):
        return error.message

    def keyboard(self, rows):
        make = telegram.InlineKeyboardButton
        return telegram.InlineKeyboardMarkup([[make(text, callback_data=data) for text, data in row] for row in rows])

    def file(self, content, name):
        return telegram.InputFile(content, filename=name)

    def photo_of_album(self, content, caption=None):
        return telegram.InputMediaPhoto(content, caption=caption)

    def reply(self, message_id, **more):
        return telegram.ReplyParameters(message_id, **more)

    def reaction(self, emoji):
        return [telegram.ReactionTypeEmoji(emoji)]

    def command(self, name, text):
        return telegram.BotCommand(name, text)

    async def download(self, file):
        return bytes(await file.download_as_bytearray())

    def sender(self, message):
        return message.from_user

    async def open(self):
        await self.bot.initialize()

    async def close(self):
        await self.bot.shutdown()

    @contextlib.asynccontextmanager
    async def running(self, webhook=None):
        """The library's own loop; gives a queue of the updates that its handlers saw."""
        seen, troubles = asyncio.Queue(), []
        application = telegram.ext.Application.builder().bot(self.bot).build()

        async def handler(update, _):
            await seen.put(update)

        application.add_handler(telegram.ext.TypeHandler(telegram.Update, handler))
        await application.initialize()
        await application.start()
        if webhook:
            port = free_port()
            await application.updater.start_webhook("127.0.0.1", port, "hook", secret_token=webhook,
                                                    webhook_url=f"http://127.0.0.1:{port}/hook")
        else:
            await application.updater.start_polling(timeout=5, error_callback=troubles.append)
        try:
            yield seen, troubles
        finally:
            await application.updater.stop()
            await application.stop()
            await application.shutdown()


class Aiogram:
    title = "aiogram"
    errors = {
        "bad": exceptions.TelegramBadRequest,
        "forbidden": exceptions.TelegramForbiddenError,
        "conflict": exceptions.TelegramConflictError,
        "rate": exceptions.TelegramRetryAfter,
        "moved": exceptions.TelegramMigrateToChat,
        "token": exceptions.TelegramUnauthorizedError,
        "server": exceptions.TelegramServerError,
        "html": exceptions.ClientDecodeError,
        "broken": exceptions.TelegramNetworkError,
        "cut": exceptions.ClientDecodeError,
    }

    def __init__(self, url, token, seen):
        class Session(AiohttpSession):
            def check_response(self, bot, method, status_code, content):
                seen(method.__api_method__, content)
                return super().check_response(bot, method, status_code, content)

        self.bot = aiogram.Bot(token, session=Session(api=TelegramAPIServer.from_base(url)))

    def retry_after(self, error):
        return error.retry_after

    def moved_to(self, error):
        return error.migrate_to_chat_id

    def text_of(self, error):
        return error.message

    def keyboard(self, rows):
        make = types.InlineKeyboardButton
        rows = [[make(text=text, callback_data=data) for text, data in row] for row in rows]
        return types.InlineKeyboardMarkup(inline_keyboard=rows)

    def file(self, content, name):
        return types.BufferedInputFile(content, name)

    def photo_of_album(self, content, caption=None):
        return types.InputMediaPhoto(media=types.BufferedInputFile(content, "p.jpg"), caption=caption)

    def reply(self, message_id, **more):
        return types.ReplyParameters(message_id=message_id, **more)

    def reaction(self, emoji):
        return [types.ReactionTypeEmoji(emoji=emoji)]

    def command(self, name, text):
        return types.BotCommand(command=name, description=text)

    async def download(self, file):
        return (await self.bot.download_file(file.file_path)).read()

    def sender(self, message):
        return message.from_user

    async def open(self):
        await self.bot.get_me()

    async def close(self):
        await self.bot.session.close()

    @contextlib.asynccontextmanager
    async def running(self, webhook=None):
        seen = asyncio.Queue()
        dispatcher = aiogram.Dispatcher()

        @dispatcher.update.outer_middleware()
        async def collect(_handler, event, _data):
            await seen.put(event)

        if webhook:
            port = free_port()
            app = aiohttp.web.Application()
            SimpleRequestHandler(dispatcher, self.bot, handle_in_background=False,
                                 secret_token=webhook).register(app, path="/hook")
            runner = aiohttp.web.AppRunner(app)
            await runner.setup()
            await aiohttp.web.TCPSite(runner, "127.0.0.1", port).start()
            await self.bot.set_webhook(f"http://127.0.0.1:{port}/hook", secret_token=webhook)
            try:
                yield seen, []
            finally:
                await self.bot.delete_webhook()
                await runner.cleanup()
            return
        polling = asyncio.create_task(dispatcher.start_polling(self.bot, polling_timeout=5, handle_signals=False,
                                                               close_bot_session=False))
        try:
            yield seen, []
        finally:
            with contextlib.suppress(RuntimeError):
                await dispatcher.stop_polling()
            await polling


LIBRARIES = (PythonTelegramBot, Aiogram)
