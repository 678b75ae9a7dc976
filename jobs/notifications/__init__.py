"""The ends of jobs and evaluations, told to URLs (docs/webhooks.md).

urls        which URLs may be told
message     what is sent
signing     how a receiver knows that it is ours
post        one HTTP request
attempts    which answers are final, and how long to wait before the next attempt
turns       which host is served next, and which is left for now
delivering  sends what is due in `jobs.store.notifications`
"""
