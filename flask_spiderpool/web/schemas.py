"""What the REST API takes and gives. Ranges are checked where the values are used: by control and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import RAISE, Schema, ValidationError, fields, validate, validates_schema

from flask_spiderpool.control.verbs import MAX_NOTE_LENGTH
from flask_spiderpool.terms import Desired, Effect, Status, Verb
from flask_spiderpool.web.fields import Flag, Number, OneOrMany, Whole
from flask_spiderpool.web.unknown import unknown_name


def _about(text: str) -> dict[str, str]:
    return {"description": text}


class Strict(Schema):
    """Refuses unknown fields, naming the nearest known one."""

    class Meta:
        unknown = RAISE

    def handle_error(self, error: ValidationError, data: Any, *, many: bool, **kwargs: Any) -> None:
        """Add "did you mean" to what marshmallow says of an unknown field."""
        if isinstance(error.messages, dict) and isinstance(data, Mapping):
            known = [field.data_key or name for name, field in self.fields.items()]
            for name, texts in error.messages.items():
                if name not in known and texts == [self.error_messages["unknown"]]:
                    texts[:] = [unknown_name("field", str(name), known)]


class StartArguments(Strict):
    """``POST /spider/start``."""

    spider_name = fields.String(required=True, validate=validate.Length(1, 200))
    target_url = OneOrMany(metadata=_about("Where to begin: one URL or a list; default: the spider's own."))
    max_depth = Whole(metadata=_about("Links followed from a start URL at most."))
    crawl_delay = Number(metadata=_about("Seconds between requests to one host."))
    max_pages = Whole(metadata=_about("Pages fetched at most."))
    max_time_s = Number(metadata=_about("Seconds from the first page on, at most."))
    allowed_domains = fields.List(
        fields.String(), metadata=_about("Hosts that belong to the task; default: those of the start URLs.")
    )
    # Schemas have attributes "include" and "exclude" of their own.
    include_urls = fields.List(
        fields.String(),
        data_key="include",
        attribute="include",
        metadata=_about("Regular expressions; a URL must match one of them."),
    )
    exclude_urls = fields.List(
        fields.String(),
        data_key="exclude",
        attribute="exclude",
        metadata=_about("Regular expressions; a URL must match none."),
    )
    concurrency = Whole(metadata=_about("Requests under way at once in a slice."))
    concurrency_per_host = Whole(metadata=_about("Requests under way at once to one host."))
    max_parallel = Whole(metadata=_about("Slices of the task at once."))
    priority = Whole(metadata=_about("Smaller goes first."))
    headers = fields.Dict(
        keys=fields.String(), values=fields.String(), metadata=_about("Request headers to add.")
    )
    user_agent = fields.String()
    obey_robots = Flag(metadata=_about("Obey robots.txt. Can only be switched on here, not off."))
    respect_nofollow = Flag(metadata=_about("Do not follow links marked rel=nofollow."))
    follow = Flag(metadata=_about("Follow every link in scope."))
    extract = Flag(metadata=_about("Extract text and metadata."))
    links_only = Flag(metadata=_about("Keep URLs, statuses and titles only."))
    request_timeout_s = Number(metadata=_about("Deadline of one request, redirects in."))
    max_bytes = Whole(metadata=_about("Body bytes on the wire, at most."))
    max_unpacked_bytes = Whole(metadata=_about("Body bytes after unpacking, at most."))
    attempts = Whole(metadata=_about("Attempts of one request."))
    backoff_s = Number(metadata=_about("First pause before another attempt; then doubled."))
    note = fields.String(
        validate=validate.Length(max=MAX_NOTE_LENGTH), metadata=_about("One line for the task's history.")
    )


class VerbArguments(Strict):
    """``POST /spider/pause``, ``resume`` and ``stop``."""

    task_id = fields.UUID(required=True)
    reason = fields.String(
        validate=validate.Length(max=MAX_NOTE_LENGTH), metadata=_about("One line for the task's history.")
    )


class RetryArguments(Strict):
    """``POST /spider/retry``."""

    task_id = fields.UUID(required=True)
    reason = fields.String(
        validate=validate.Length(max=MAX_NOTE_LENGTH), metadata=_about("One line for the task's history.")
    )
    max_pages = Whole(metadata=_about("A new limit; a task that ended at its limit needs a larger one."))


class Started(Schema):
    """The answer to a start."""

    task_id = fields.UUID()
    spider_name = fields.String()
    status = fields.String(validate=validate.OneOf([status.value for status in Status]))
    links = fields.Dict(keys=fields.String(), values=fields.String())


class Changed(Schema):
    """The answer to the other verbs."""

    task_id = fields.UUID()
    verb = fields.String(validate=validate.OneOf([verb.value for verb in Verb]))
    effect = fields.String(validate=validate.OneOf([effect.value for effect in Effect]))
    status = fields.String(validate=validate.OneOf([status.value for status in Status]))
    desired = fields.String(validate=validate.OneOf([desired.value for desired in Desired]))
    links = fields.Dict(keys=fields.String(), values=fields.String())


class StatusArguments(Schema):
    """The query of ``GET /spool/status``."""

    task_id = fields.UUID(metadata=_about("Only this task, with its numbers."))

    @validates_schema(pass_original=True)
    def one_value(self, data: Any, original: Any, **kwargs: Any) -> None:
        """Refuse ``?task_id=a&task_id=b``, of which one would be silently ignored."""
        getlist = getattr(original, "getlist", None)
        if getlist is not None and len(getlist("task_id")) > 1:
            raise ValidationError("give one task_id", "task_id")


class Numbers(Schema):
    """``discovered = queued + leased + done + failed + skipped``."""

    discovered = fields.Integer()
    queued = fields.Integer()
    leased = fields.Integer()
    done = fields.Integer()
    failed = fields.Integer()
    skipped = fields.Integer()
    retries = fields.Integer()
    pages = fields.Integer(metadata=_about("New versions of documents."))
    unchanged = fields.Integer(metadata=_about("Documents found as they were."))
    items = fields.Integer()
    wire_bytes = fields.Integer()


class TaskStatus(Schema):
    """One task."""

    task_id = fields.UUID()
    spider_name = fields.String()
    status = fields.String(validate=validate.OneOf([status.value for status in Status]))
    desired = fields.String(validate=validate.OneOf([desired.value for desired in Desired]))
    end_reason = fields.String(allow_none=True)
    numbers = fields.Nested(Numbers)
    max_pages = fields.Integer(allow_none=True)
    created_by = fields.String(allow_none=True)
    created_at = fields.DateTime()
    started_at = fields.DateTime(allow_none=True)
    ended_at = fields.DateTime(allow_none=True)
    links = fields.Dict(keys=fields.String(), values=fields.String())


class WorkerStatus(Schema):
    """One worker process as it last spoke."""

    name = fields.String()
    seen_at = fields.DateTime()
    threads = fields.Integer(metadata=_about("Slices that it can run at once."))
    slices = fields.Integer(metadata=_about("Slices that it runs now."))
    info = fields.Dict(keys=fields.String())


class RequestCounts(Schema):
    """Requests of all tasks that have not ended."""

    queued = fields.Integer()
    leased = fields.Integer()


class SlotCounts(Schema):
    """Slots by state: waiting to be sent, called for, at work."""

    due = fields.Integer()
    sent = fields.Integer()
    running = fields.Integer()


class KeeperStatus(Schema):
    """The housekeeping loop of the workers."""

    last_pass_age_s = fields.Float(allow_none=True, metadata=_about("Null before its first pass."))


class PoolStatus(Schema):
    """The whole pool."""

    tasks = fields.Dict(keys=fields.String(), values=fields.Integer(), metadata=_about("By status."))
    requests = fields.Nested(RequestCounts)
    slots = fields.Nested(SlotCounts)
    workers = fields.List(fields.Nested(WorkerStatus))
    threads = fields.Integer()
    slices = fields.Integer()
    pages_last_minute = fields.Integer(metadata=_about("In the last minute of the clock that is over."))
    pages_this_minute = fields.Integer(metadata=_about("In the minute under way."))
    failure_rate = fields.Float(metadata=_about("Failed of all settled in these two minutes, 0 to 1."))
    keeper = fields.Nested(KeeperStatus)


class Problem(Schema):
    """RFC 9457."""

    type = fields.String()
    title = fields.String()
    status = fields.Integer()
    detail = fields.String()
    errors = fields.List(fields.Dict(keys=fields.String(), values=fields.String()))
