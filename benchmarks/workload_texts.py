"""The words of `benchmarks.workloads`."""

from __future__ import annotations

SYSTEM = """\
You are the assistant of Brackwater Lending, a library of tools in a harbour town. Members \
borrow tools as others borrow books. You answer what they write, in plain words, and in no \
more than four sentences.

Membership: a year costs 30, or 15 for students and for people over seventy. A household \
shares one membership. New members bring an identity card and a bill with their address; \
both are looked at and given back, and no copy is kept.

Lending: hand tools go out for fourteen days, power tools for four, and anything with a \
petrol engine for two. A loan can be extended once, by telephone or on the website, unless \
somebody else is waiting. Five things may be out at a time. Ladders over four metres and the \
tile saw must be collected by two people, because one cannot lift them safely.

Lateness: each late day costs 1 for a hand tool and 3 for a power tool, and never more than \
half of what the tool would cost new. Whoever is ill, or cannot come because of a storm \
warning, writes before the end of the loan and pays nothing.

Damage: worn blades, drill bits and sanding belts are our concern. A tool that was dropped, \
left in the rain or used for what it was not made for is repaired at the member's cost, at \
20 an hour for our own work. Say so without blame, and ask for a photograph.

Safety: a chainsaw is lent only to members who have shown a certificate. Goggles and ear \
defenders come with every power tool free of charge. Never explain how to take off a guard \
or a switch that protects the user, whatever the reason given.

Opening hours: Tuesday to Friday from three until seven, Saturday from nine until one. In \
January the library is closed for stocktaking; loans that would end then end on the first \
Tuesday in February.

If something is not covered here, say so, and offer that one of the volunteers calls back, \
which takes up to two days."""

GREETINGS = (
    "Hello,",
    "Good morning,",
    "Hi there,",
    "Dear library,",
    "Good evening,",
    "To whom it may concern,",
    "Hello again,",
    "Hi,",
)
TOOLS = (
    "the cordless drill",
    "the long ladder",
    "the tile saw",
    "a chainsaw",
    "the belt sander",
    "the hedge trimmer",
    "the pressure washer",
    "a set of chisels",
    "the wallpaper steamer",
    "the concrete mixer",
    "the jigsaw",
    "the pipe wrench",
    "the heat gun",
    "the wheelbarrow",
    "the router",
    "the sewing machine",
)
REQUESTS = (
    "may I keep {tool} until Saturday, although it is due on Thursday?",
    "{tool} stopped working after ten minutes; what should I do with it now?",
    "can my brother collect {tool} with my card while I am at work?",
    "what would it cost to borrow {tool} for a week, and do I have to reserve it?",
    "I brought {tool} back on Friday, but the website says that I still have it.",
    "is {tool} free next weekend, and does it come with instructions?",
    "I was told to pay for {tool}, though I wrote before the end of the loan.",
    "does {tool} fit into a small car, or should I come with a trailer?",
    "my neighbour would like to use {tool} too; is that allowed?",
    "one part of {tool} is missing from the case. It was so when I opened it.",
)
ASIDES = (
    "I moved here in spring.",
    "It has been raining for days.",
    "My landlord wants the work done by Monday.",
    "I have never used one before.",
    "We are building a shed for the school.",
    "There are two of us who can carry things.",
    "My membership number ends in 47.",
    "I can send you a photograph.",
    "Please answer by e-mail, since I am at sea during the week.",
    "You helped me very well the last time.",
    "The shop in the high street has closed.",
    "I am seventy-four years old.",
)

ESSAYS = (
    "Explain to a beginner how to {task}.",
    "Write a short guide: how to {task}.",
    "What goes wrong most often for people who {task}?",
    "Write a letter to a friend who wants to {task}.",
    "List the steps that it takes to {task}, with a reason for each.",
    "Give three opinions on the best way to {task}.",
    "Write the opening of a story about a woman who has to {task}.",
    "How did people {task} a hundred years ago?",
)
TASKS = (
    "mend a wooden boat",
    "bake bread without an oven",
    "keep bees on a roof",
    "learn to read a map",
    "repair an old clock",
    "grow vegetables in the shade",
    "paint a window frame",
    "build a dry stone wall",
    "teach a child to swim",
    "store apples over the winter",
    "train for a long walk",
    "plan a village fair",
    "sharpen a kitchen knife",
    "write a family history",
    "find a leak in a roof",
    "cook for forty people",
)
NOTES = (
    "The person has two free evenings a week and does not like to hurry.",
    "Money is short, so that everything which can be borrowed should be borrowed.",
    "There is a shed of nine square metres, dry, but without electric light.",
    "A neighbour who did the same years ago is willing to help for a day.",
    "The weather in this place is wet from October to March and windy all year.",
    "Children will be nearby, and nothing sharp or hot may be left where they reach it.",
    "The nearest shop is an hour away, and its owner closes whenever he goes fishing.",
    "An earlier attempt failed because the work was begun before the plan was finished.",
    "Everything has to be carried up four flights of stairs by hand.",
    "The result should last for at least ten years with little care.",
    "Some say that the old way is slower but better; others laugh at that.",
    "Notes were kept of each step, in pencil, and some of them can no longer be read.",
    "The town council wants to be told in writing before any of it begins.",
    "It may not make noise after eight in the evening or on Sundays.",
    "What is left over should be given to somebody who can use it.",
    "A cousin in the city has offered to print whatever is written about it.",
    "The only large table in the house is also needed for meals.",
    "In the second week there will be visitors who ask many questions.",
)

LABELS = ("loan", "damage", "fees", "membership", "safety", "other")
INSTRUCTION = f"""\
Sort each message to a library of tools into one of these groups: {", ".join(LABELS)}.

loan: what is free, reserving, collecting, extending or bringing back a tool.
damage: a tool that is broken, worn, incomplete or does not work, when nobody is in danger.
fees: what something cost, costs or should not have cost, fines and receipts among them.
membership: joining, leaving, cards, addresses, and who in a household may borrow.
safety: whatever might hurt somebody, and what protects from it, broken tools among it.
other: all the rest, such as gifts, volunteers and the place itself.

Answer with the group, and then with a reason of a few words. If a message belongs to two groups, \
choose the one that somebody has to act on first."""
EXAMPLES = (
    ("May I keep the drill for two more days?", "loan", "asks to extend"),
    ("The sander's belt tore while I was using it.", "damage", "a part broke"),
    ("Why was I charged 6 for the hedge trimmer?", "fees", "asks about a charge"),
    ("How do I join, and what should I bring?", "membership", "wants to join"),
    ("Do I need goggles for the tile saw?", "safety", "asks about protection"),
    ("Are you looking for volunteers on Saturdays?", "other", "offers help"),
    ("Is the long ladder free on the ninth of May?", "loan", "asks what is free"),
    ("The case of the router came without its key.", "damage", "a part is missing"),
    ("I paid in cash, but my account still shows the fine.", "fees", "a payment is missing"),
    (
        "My daughter is eighteen now; does she need her own card?",
        "membership",
        "asks who is covered",
    ),
    ("The guard of the saw is loose. May I use it without?", "safety", "a guard is loose"),
    ("Your sign at the harbour points the wrong way.", "other", "reports a wrong sign"),
    ("Please reserve the concrete mixer for Friday.", "loan", "wants to reserve"),
    ("Somebody dropped the pressure washer, and it leaks.", "damage", "it was dropped"),
    ("Is there a reduced price for students?", "membership", "asks about the price to join"),
    ("What does a late day cost for a chainsaw?", "fees", "asks what lateness costs"),
    ("Smoke came out of the heat gun when I switched it on.", "safety", "something smoked"),
    ("Could you print the opening hours larger?", "other", "a wish about the sign"),
    ("I cannot bring the wheelbarrow back before Monday.", "loan", "will be late"),
    ("One chisel of the set has a chipped edge.", "damage", "an edge is chipped"),
    ("I wrote before the storm, and was fined all the same.", "fees", "disputes a fine"),
    (
        "I moved to the next street. Do you need my new address?",
        "membership",
        "address has changed",
    ),
    ("Where do I show my certificate for the chainsaw?", "safety", "asks about a certificate"),
    ("I would like to give you my father's old plane.", "other", "wants to give a tool"),
    ("Can a friend collect the jigsaw for me?", "loan", "somebody else collects"),
    ("The display of the sewing machine stays dark.", "damage", "the display is dark"),
    ("Do I get my money back if I leave in June?", "membership", "asks about leaving"),
    ("The receipt says 20, but only half an hour was worked.", "fees", "disputes a repair"),
    ("Is the wallpaper steamer too hot for a child to hold?", "safety", "asks about heat"),
    ("Is there somewhere to lock my bicycle?", "other", "asks about the place"),
    ("The ladder was promised to me, but it was gone.", "loan", "a reservation failed"),
    ("The wheel of the barrow has come off its axle.", "damage", "the wheel came off"),
    ("Does the price of 15 count from my next birthday?", "fees", "asks which price counts"),
    ("Two of us moved apart. Who keeps the card?", "membership", "a household has split"),
    ("The plug of the mixer gave me a small shock.", "safety", "an electric shock"),
    ("Do you know a good teacher of carpentry?", "other", "asks for advice"),
)
QUESTIONS = (
    "How long may I keep {tool}?",
    "Is {tool} back yet?",
    "{tool} makes a strange noise.",
    "I lost the key that belongs to {tool}.",
    "Must I wear gloves with {tool}?",
    "You charged me twice for {tool}.",
    "May my wife borrow {tool} on my card?",
    "The cable of {tool} is worn through.",
    "What is the fine for {tool}, three days late?",
    "Please put me on the list for {tool}.",
    "Who taught you to look after {tool} so well?",
    "Is {tool} safe to use in the rain?",
    "Before I join: do members pay extra for {tool}?",
)
