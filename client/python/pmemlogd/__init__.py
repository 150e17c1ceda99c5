from .connection import Connection, connect
from .errors import AppendManyError, Error, InDoubt, ProtocolError, Trimmed, Unreachable
from .log import Log, Record, Stat

__all__ = ["AppendManyError", "Connection", "Error", "InDoubt", "Log", "ProtocolError", "Record", "Stat",
           "Trimmed", "Unreachable", "connect"]
