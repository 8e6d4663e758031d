"""The page at `/ui`: files for a browser, and a login that becomes a session.

    browser ──> entrance ──> rules ──> who is it ──> page files, sessions, or the API as for kubectl

    sessions.py  what somebody has logged in with, kept behind a random secret, bounded
    browsers.py  which requests are a browser's, what those may, and whose session they come with
    sign_on.py   logging in at an issuer: there with a challenge, back with a code
    app.py       the files, and the paths below `/ui` at which sessions begin and end
    several.py   several GETs on one connection, each as if it had come by itself
    problems.py  what the first screen says, for `clusterspace top`; the page has it in JavaScript
    static/      the page itself: HTML, CSS and ES modules, served as they are

The page has no rights and no API of its own. All that it shows it asks of the fleet API server, as
the user who has logged in. A request that is no browser's meets none of this but the question
whether it is one.
"""
