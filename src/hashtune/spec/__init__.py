"""The run spec: strict schema, composition from conf/, pins."""
