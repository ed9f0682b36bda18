"""The labels that corpora fix, sorted. They are published with the corpus, so they say nothing about anybody's text."""


def _names(text: str, prefix: str = "") -> tuple[str, ...]:
    return tuple(f"{prefix}{name}" for name in text.split())


def _iob2(types: str, of_one_word: str = "") -> tuple[str, ...]:
    """The tags of these types, of which some never go on over a second word."""
    return tuple(sorted(["O", *_names(types, "B-"), *_names(types, "I-"), *_names(of_one_word, "B-")]))


SENTIMENTS = ("neg", "pos")
POLARITIES = ("negative", "positive")
INFERENCES = ("contradiction", "entailment", "neutral")
CONLL2003 = _iob2("LOC MISC ORG PER")
WIKIANN = _iob2("LOC ORG PER")
WNUT17 = _iob2("corporation creative-work group location person product")

UPOS = _names("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X")
"""The universal parts of speech."""

ATIS = _names(
    """
    abbreviation aircraft aircraft#atis_flight#atis_flight_no airfare airfare#atis_flight airfare#atis_flight_time
    airline airline#atis_flight_no airport capacity cheapest city day_name distance flight flight#atis_airfare
    flight#atis_airline flight_no flight_no#atis_airline flight_time ground_fare ground_service
    ground_service#atis_ground_fare meal quantity restriction
    """,
    prefix="atis_",
)
"""The intents of all three splits, of which some occur in the test set alone."""

ATIS_SLOTS = _iob2(
    """
    airline_name airport_name arrive_date.day_number arrive_time.end_time arrive_time.period_of_day
    arrive_time.start_time arrive_time.time arrive_time.time_relative city_name class_type cost_relative
    depart_date.day_number depart_date.today_relative depart_time.end_time depart_time.period_of_day
    depart_time.start_time depart_time.time depart_time.time_relative economy fare_amount fare_basis_code flight_mod
    flight_number flight_stop flight_time fromloc.airport_name fromloc.city_name fromloc.state_name meal_code
    meal_description restriction_code return_date.date_relative return_date.day_number return_date.today_relative
    round_trip state_name stoploc.city_name time today_relative toloc.airport_name toloc.city_name toloc.state_name
    transport_type
    """,
    of_one_word="""
    aircraft_code airline_code airport_code arrive_date.date_relative arrive_date.day_name arrive_date.month_name
    arrive_date.today_relative arrive_time.period_mod booking_class compartment connect day_name day_number days_code
    depart_date.date_relative depart_date.day_name depart_date.month_name depart_date.year depart_time.period_mod flight
    flight_days fromloc.airport_code fromloc.state_code meal mod month_name or period_of_day return_date.day_name
    return_date.month_name return_time.period_mod return_time.period_of_day state_code stoploc.airport_code
    stoploc.airport_name stoploc.state_code time_relative toloc.airport_code toloc.country_name toloc.state_code
    """,
)

SNIPS = _names("AddToPlaylist BookRestaurant GetWeather PlayMusic RateBook SearchCreativeWork SearchScreeningEvent")
SNIPS_SLOTS = _iob2(
    """
    album artist city country cuisine current_location entity_name facility genre geographic_poi location_name
    movie_name movie_type music_item object_location_type object_name object_part_of_series_type object_select
    object_type party_size_description playlist playlist_owner poi restaurant_name restaurant_type served_dish service
    sort spatial_relation state timeRange track
    """,
    of_one_word="best_rating condition_description condition_temperature party_size_number rating_unit rating_value "
    "year",
)
