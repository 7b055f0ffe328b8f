"""The public table from OpenStreetMap's tags to the coarse categories of anchors."""

__all__ = ["CATEGORIES", "OSM_KEYS", "coarse"]

OTHER = "other"

BY_KEY: dict[str, str | None] = {
    "amenity": OTHER,
    "craft": "work",
    "healthcare": "health",
    "historic": "culture",
    "leisure": "leisure",
    "office": "work",
    "public_transport": None,
    "railway": None,
    "shop": "shop",
    "tourism": OTHER,
}
"""Category of a tag whose value is in no list below; none: it makes no anchor."""

BY_VALUE = {
    "food": {
        "amenity": "restaurant cafe fast_food food_court ice_cream biergarten bistro",
        "shop": "bakery coffee confectionery deli pastry",
    },
    "nightlife": {"amenity": "bar pub nightclub casino gambling stripclub swingerclub brothel love_hotel"},
    "health": {
        "amenity": "hospital clinic doctors dentist pharmacy nursing_home veterinary social_facility baby_hatch",
        "shop": "chemist hearing_aids medical_supply optician",
    },
    "education": {
        "amenity": "school university college kindergarten library language_school music_school driving_school childcare training"
    },
    "transport": {
        "amenity": "bus_station ferry_terminal taxi parking parking_entrance bicycle_parking motorcycle_parking bicycle_rental car_rental "
        "car_sharing charging_station fuel car_wash boat_rental",
        "leisure": "marina slipway",
        "public_transport": "station",
        "railway": "station halt tram_stop subway_entrance",
    },
    "lodging": {"tourism": "hotel hostel motel guest_house apartment chalet camp_site caravan_site alpine_hut wilderness_hut"},
    "culture": {
        "amenity": "theatre cinema arts_centre studio exhibition_centre events_venue conference_centre planetarium community_centre",
        "tourism": "museum gallery attraction zoo aquarium theme_park",
    },
    "worship": {"amenity": "place_of_worship monastery grave_yard"},
    "public_services": {
        "amenity": "townhall courthouse police fire_station post_office embassy public_building prison ranger_station",
        "office": "government administrative diplomatic employment_agency quango",
        "tourism": "information",
    },
    "finance": {"amenity": "bank bureau_de_change money_transfer", "office": "financial insurance central_bank"},
    "leisure": {"amenity": "public_bath sauna", "tourism": "picnic_site viewpoint"},
    "street": {
        "amenity": "bench waste_basket waste_disposal recycling vending_machine post_box atm toilets fountain drinking_water clock shelter "
        "telephone life_ring grit_bin ashtray parcel_locker luggage_locker bicycle_repair_station watering_place artwork",
        "tourism": "artwork",
        "leisure": "outdoor_seating picnic_table",
    },
}
"""Values of each key, by category; "street" is what stands in streets and is no place that people go to."""

OSM_KEYS = tuple(BY_KEY)
"""Keys of OpenStreetMap's tags that make a place an anchor."""

CATEGORIES = tuple(sorted({*BY_VALUE, *filter(None, BY_KEY.values())}))
"""All categories of this table."""

_CATEGORY = {(key, value): category for category, keys in BY_VALUE.items() for key, values in keys.items() for value in values.split()}


def coarse(key: str, value: str) -> str | None:
    """Return the category of a tag, or None if it makes no anchor.

    Parameters
    ----------
    key : str
        One of `OSM_KEYS`.
    value : str
        One value; letter case and spaces around it do not count.
    """
    return _CATEGORY.get((key, value.strip().lower()), BY_KEY[key])
