-- The armed alarms of an instance are read in pages, and cancelled in small steps when it is removed.
CREATE INDEX alarm_armed ON alarm (instance, id) WHERE state = 'armed';
