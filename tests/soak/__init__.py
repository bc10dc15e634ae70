"""A gateway under load for minutes, while its engines are killed, stopped, flood it and heal."""
