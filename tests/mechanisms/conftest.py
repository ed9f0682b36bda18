from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
