-- The steps. They use what queue.lua defines.

-- Gives the caller its place in the queue, or prolongs it. Returns the time in ms after which the caller
-- has to ask again.
local function queueUp(caller, at, before)
  if not ticket or ticket < caller.ticket then redis.call('HSET', S, 'ticket', caller.ticket) end
  redis.call('HSET', E, id, cjson.encode(caller))
  redis.call('ZADD', Q, 0, at)
  redis.call('ZADD', D, now + caller.ttl, at)
  -- Waiters that came together must not go on asking together, so each subtracts another part.
  local recheck = math.floor(ask.every * (1 - tonumber(id:sub(1, 2), 16) / 1024))
  if changed or before + 1 == CHECKING_PLACE then wake() end
  if caller.join == 0 then recheck = math.min(recheck, NEWCOMER_ASK_EVERY) end
  if before == 0 then
    recheck = math.min(recheck, firstEnd() or recheck)
    if quiet > now then recheck = math.min(recheck, msUntil(quiet) + 1) end
  else -- the holder and all waiters before the caller may have died
    local ahead = redis.call('ZRANGE', Q, before - 1, before - 1)[1]
    local deadAt = ahead and redis.call('ZSCORE', D, ahead)
    if deadAt then recheck = math.min(recheck, msUntil(deadAt) + 1) end
  end
  return math.max(recheck, 1)
end

-- Whether a flaw stops newcomers. Those that hold or wait go on.
local function hasFlaw()
  noteFar()
  local first = redis.call('ZRANGE', Q, 0, 0)[1]
  if first then record(first:sub(33)) end -- notes its flaw
  return next(flaws) ~= nil
end

-- Returns the innermost of the enclosing runs that hold a slot, or nil. The caller would wait for itself behind it.
local function enclosingHolder()
  local inside
  for _, run in ipairs(ask.within or {}) do
    if redis.call('ZSCORE', H, run) and alive(record(run), run) then inside = run end
  end
  return inside
end

local function join()
  local caller = ask.record
  caller.join = ask.subscribed and now or 0
  local old, stored = record(id)
  local gone = redis.call('ZSCORE', G, id) -- the entry has a tombstone
  local evictor = evictorOf(id)
  if gone and evictor then return {verdict = 'evicted', by = evictor} end
  if stored then caller.ticket, caller.since = old.ticket, old.since end
  local isNew = caller.ticket == '0'
  if not isNew then bypassMemoryLimit() end
  checkEpoch()
  dropExpired(now)
  if not gone and stored and redis.call('ZSCORE', H, id) and old.slots ~= '' then
    -- An evicted holder does not start its command. It keeps the slot until it leaves:
    -- this call may be late, and the command may be running.
    if evictor then return {verdict = 'evicted', by = evictor} end
    lease(old, id)
    return {verdict = 'granted', epoch = epoch, record = old, noRunID = noRunID}
  end
  -- The command of a caller that joins does not run yet. So a grant without slots is made again, and a
  -- record with a flaw is written anew.
  if not gone then redis.call('ZREM', H, id) end
  if flaws[id] then
    dequeueAll(id)
    flaws[id] = nil
  end
  if isNew then caller.ticket, caller.since = nextNumber(ticket), digits(micros) end
  local at = place(caller, id)
  local before = redis.call('ZLEXCOUNT', Q, '-', '(' .. at)
  local use = inUse() -- this also notes the flaws of holders
  if isNew and hasFlaw() then
    if not gone then removeEntry(caller, id) end
    return {verdict = 'invalid', name = name, flaws = listFlaws()}
  end
  local function fitsNow() return not gone and before == 0 and quiet <= now and fits(caller, use) end
  local inside = enclosingHolder()
  local full, replaced = false, {}
  if isNew and not inside and not ask.nowait and (ask.queue or caller.replace ~= '') and not fitsNow() then
    local ahead = caller.replace ~= '' and rivals(at) or {}
    if ask.queue and redis.call('ZCARD', Q) - #ahead >= ask.queue then -- those ahead would be replaced
      full = true
    elseif not gone and caller.replace ~= '' then
      before = before - #ahead
      replaced = replace(caller, ahead)
      use = inUse()
    end
  end
  local answer = {epoch = epoch, record = caller, noRunID = noRunID, entries = listed(replaced)}
  if not full and fitsNow() then
    grant(caller, id, not isNew and at, use)
    wake()
    answer.verdict = 'granted'
    return answer
  end
  -- The rest of the quarantine, if nothing else is in the way of the caller.
  local quarantined = quiet > now and fits(caller, use) and msUntil(quiet) or 0
  if inside or ask.nowait or full then
    local isBehindWaiters = full and ask.queue > 0
    if gone or isBehindWaiters then quarantined = 0 end
    -- The entry stays in a quarantine, because the caller asks again. It stays beside a tombstone, because its
    -- hold may go on.
    if quarantined == 0 and not gone then removeEntry(caller, id) end
    wake()
    return {verdict = inside and 'nested' or 'busy', inside = inside, full = full, quarantine = quarantined,
      waiters = redis.call('ZCARD', Q), entries = listed(listHolders())}
  end
  if gone then return {verdict = 'gone'} end
  answer.verdict, answer.place, answer.quarantine = 'waiting', before + 1, quarantined
  answer.recheck = queueUp(caller, at, before)
  keep(caller.ttl)
  return answer
end

-- Prolongs a lease, or restores a holder that the store has forgotten.
local function renew()
  local gone = redis.call('ZSCORE', G, id) -- the entry has a tombstone
  local holds = redis.call('ZSCORE', H, id)
  local caller, stored = record(id)
  local known = holds and stored
  if flaws[id] and not gone and not ask.record then
    return {verdict = 'invalid', name = name, flaws = listFlaws()}
  end
  if gone or not (known or ask.record) then return {verdict = 'lost'} end
  local evictor = holds and evictorOf(id)
  if evictor then return {verdict = 'evicted', by = evictor} end
  if holds and not alive(caller, id) then return {verdict = 'lost'} end
  if not known then
    caller = ask.record
    if not holds then
      local use = inUse()
      if epoch == ask.epoch or not fits(caller, use) or overlap(caller.slots, use.taken) then return {verdict = 'lost'} end
      dequeue(place(caller, id)) -- in old data the holder may still be a waiter
      if not fence or fence < caller.fence then
        fence = caller.fence
        redis.call('HSET', S, 'fence', fence)
      end
    end
    redis.call('HSET', E, id, cjson.encode(caller))
  end
  if ask.mode == 'hold' then
    local sinceGrant = math.max(now - math.floor(tonumber(caller.since) / 1000), 0)
    caller.hold = math.min(sinceGrant + ask.hold, MAXHOLD) -- a record's hold counts from the grant
    redis.call('HSET', E, id, cjson.encode(caller))
  end
  lease(caller, id)
  return {verdict = 'held', epoch = epoch, record = caller, name = name}
end

local function release()
  local holds = redis.call('ZSCORE', H, id)
  local caller, stored = record(id)
  local existed = stored or holds ~= false
  local isAlive = alive(caller, id)
  if not stored then
    if flaws[id] then dequeueAll(id) end
    caller = ask.record or caller
  end
  if ask.mode == 'release' and holds and holdEnd(caller) > now and not evictorOf(id) then
    -- The slot stays taken for the rest of the hold.
    existed, changed = isAlive, true
    if not stored and ask.record then redis.call('HSET', E, id, cjson.encode(caller)) end
    redis.call('ZADD', H, holdEnd(caller), id)
    redis.call('HDEL', E, id .. '@')
    addTombstone(id)
  else
    removeEntry(caller, id)
  end
  -- By the epoch the caller knows whether a missing entry was removed or forgotten.
  return {verdict = 'released', existed = existed, epoch = epoch or ''}
end

local function evictEntry()
  local r, stored = record(id)
  local exists = stored or redis.call('ZSCORE', H, id)
  if not stored then
    local wasQueued = dequeueAll(id)
    exists = exists or wasQueued
  end
  if exists then evict(id, r) end
  return {verdict = exists and 'marked' or 'lost'}
end

-- Returns the function of a mode that makes a step of an entry that exists.
local function existing(step)
  return function()
    bypassMemoryLimit()
    checkEpoch()
    dropExpired(now)
    local answer = step()
    if changed then wake() end
    return answer
  end
end

-- Lists the entries. It changes nothing.
local function list()
  local entries = listHolders()
  for _, waiter in ipairs(redis.call('ZRANGE', Q, 0, -1)) do
    local moment = redis.call('ZSCORE', D, waiter) or now + 1
    local isLive = tonumber(moment) > now
    local r, stored
    if isLive then r, stored = record(waiter:sub(33)) end
    if stored then entries[#entries + 1] = entryOf('waiting', waiter:sub(33), moment, r) end
  end
  noteFar()
  return {verdict = 'list', name = name, entries = listed(entries), flaws = listFlaws()}
end

-- Removes flaws that no owner will mend. An entry without a valid ID is removed, because no process owns
-- it. A lease or hold that never ends gets the latest end that its record allows. A ticket or fence that
-- cannot be counted up begins anew if nobody holds. The time of any other entry stays: its owner may be
-- alive, and write its record again.
local function sweepFlaws()
  local removed = 0
  local far = noteFar()
  for _, h in ipairs(redis.call('ZRANGE', H, 0, -1)) do
    if not isID(h) then
      removed = removed + redis.call('ZREM', H, h)
    elseif far[h] then
      local r = record(h)
      redis.call('ZADD', H, 'LT', string.format('%.0f', math.max(latestEnd(r, H), holdEnd(r))), h)
    end
  end
  for _, at in ipairs(redis.call('ZRANGE', Q, 0, -1)) do
    local waiter = at:sub(33)
    if not isID(waiter) then
      dequeue(at)
      removed = removed + 1
    elseif far[waiter] then
      local r = record(waiter)
      redis.call('ZADD', D, 'LT', string.format('%.0f', latestEnd(r, D)), at)
    end
  end
  if flaws[''] and redis.call('ZCARD', H) == 0 then
    redis.call('HDEL', S, 'ticket', 'fence')
    removed = removed + 1
  end
  return removed
end

-- Removes expired entries and flaws. Sweep is for unused names: every other step drops expired entries
-- itself. It removes a name without a state from the index.
local function sweep()
  local removed = dropExpired(now - ask.age) + sweepFlaws() + foreignKeys
  if INDEX and not format then removed = removed + redis.call('ZREM', INDEX, name) end
  flaws = {}
  list() -- finds the flaws that are left
  return {verdict = 'swept', name = name, removed = removed, flaws = listFlaws()}
end

local modes = {
  join = join, renew = existing(renew), hold = existing(renew), release = existing(release), leave = existing(release),
  evict = existing(evictEntry), list = list, sweep = sweep,
}
return cjson.encode(modes[ask.mode]())
