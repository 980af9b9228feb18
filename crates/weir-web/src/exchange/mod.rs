//! What front-ends tell each other: service received and sessions active.
