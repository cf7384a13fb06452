"""The memory plan: shapes, closed form, decisions."""
