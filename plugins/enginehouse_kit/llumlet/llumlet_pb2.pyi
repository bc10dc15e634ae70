from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class MigrateRequest(_message.Message):
    __slots__ = ("src_engine_id", "dst_engine_id", "dst_engine_ip", "dst_engine_port", "migration_type", "migration_req_policy", "num_reqs", "num_tokens", "kv_cache_usage_ratio", "trigger_policy", "request_ids")
    SRC_ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    DST_ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    DST_ENGINE_IP_FIELD_NUMBER: _ClassVar[int]
    DST_ENGINE_PORT_FIELD_NUMBER: _ClassVar[int]
    MIGRATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    MIGRATION_REQ_POLICY_FIELD_NUMBER: _ClassVar[int]
    NUM_REQS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_USAGE_RATIO_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_POLICY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    src_engine_id: str
    dst_engine_id: str
    dst_engine_ip: str
    dst_engine_port: int
    migration_type: str
    migration_req_policy: str
    num_reqs: int
    num_tokens: int
    kv_cache_usage_ratio: float
    trigger_policy: str
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, src_engine_id: _Optional[str] = ..., dst_engine_id: _Optional[str] = ..., dst_engine_ip: _Optional[str] = ..., dst_engine_port: _Optional[int] = ..., migration_type: _Optional[str] = ..., migration_req_policy: _Optional[str] = ..., num_reqs: _Optional[int] = ..., num_tokens: _Optional[int] = ..., kv_cache_usage_ratio: _Optional[float] = ..., trigger_policy: _Optional[str] = ..., request_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class MigrateResponse(_message.Message):
    __slots__ = ("success", "message", "request_ids")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, success: bool = ..., message: _Optional[str] = ..., request_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class AbortRequests(_message.Message):
    __slots__ = ("request_ids",)
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ("success", "message")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    success: bool
    message: str
    def __init__(self, success: bool = ..., message: _Optional[str] = ...) -> None: ...
