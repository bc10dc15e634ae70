"""What a replay reports: figures, tables and plots."""
