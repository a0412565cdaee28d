//! System attributes: which attributes an object has, and where in its bonus area and spill block each one lies.
